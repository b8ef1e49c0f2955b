"""Facts about modules that passes, planning and code generation share."""
