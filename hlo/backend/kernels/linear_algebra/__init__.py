"""Linear algebra: factorisations, triangular systems, LAPACK's routines."""
