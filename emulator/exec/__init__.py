"""Programs of the user on the fabric: started on its hosts, watched, measured like any other run."""
