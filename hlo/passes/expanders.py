"""The passes that write ops out as plainer ones, as one table: such ops are in few programs."""

from __future__ import annotations

from collections.abc import Callable

from hlo.passes.batchnorm_expander import batchnorm_expander
from hlo.passes.map_expander import map_expander
from hlo.passes.ragged_all_to_all_rewriter import ragged_all_to_all_rewriter
from hlo.passes.ragged_dot_rewriter import ragged_dot_rewriter
from hlo.passes.rng_expander import rng_expander
from hlo.passes.scaled_dot_rewriter import scaled_dot_rewriter
from hlo.passes.scan_expander import scan_expander
from hlo.passes.window_scan_rewriter import window_scan_rewriter

EXPANDERS: dict[str, Callable[..., bool]] = {
    "batchnorm_expander": batchnorm_expander,
    "map-expander": map_expander,
    "ragged-all-to-all-rewriter": ragged_all_to_all_rewriter,
    "ragged-dot-rewriter": ragged_dot_rewriter,
    "rng-expander": rng_expander,
    "scaled-dot-rewriter": scaled_dot_rewriter,
    "scan_expander": scan_expander,
    "window-scan-rewriter": window_scan_rewriter,
}
