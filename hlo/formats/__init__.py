"""Forms that programs come in and go out in: protocol buffers, text, archives, dump folders."""
