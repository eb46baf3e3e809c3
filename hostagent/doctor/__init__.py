"""What would keep an agent from working on a machine: `beamer doctor host` and `beamer doctor switch`."""
