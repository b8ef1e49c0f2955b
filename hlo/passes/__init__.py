"""Passes: HLO -> HLO, each one function, their order data in the catalogue."""
