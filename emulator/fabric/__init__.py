"""From a plan to kernel objects and back: nodes, links, addresses, routes, read-back, clean-up."""
