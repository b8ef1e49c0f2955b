"""Passes: HLO -> HLO, each one function, their order data in the catalogue.

Here stands what runs them; the passes have rooms by subject: `simplify/` and its `patterns/`,
`expand/` and `padding/` (ops and sizes written out as plainer ones), `movement/`, `contraction/`,
`reduction/`, `while_loops/`, `fusion/`, `blocks/` and `scores/` (what runs together).
"""
