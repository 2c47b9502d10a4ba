"""The command line, one module per group of commands; each imports what it runs only when it runs."""
