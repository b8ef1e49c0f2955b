"""Cases: modules with arguments, made up, read, cut out of others, made smaller and tried."""
