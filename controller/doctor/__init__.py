"""What would keep a controller from working on a machine: `beamer doctor controller`."""
