"""The verifier: the rules that make a parsed module a program, all broken ones reported at once."""
