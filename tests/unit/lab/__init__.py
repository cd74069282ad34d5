"""The machinery of the labs, on made-up folders."""
