"""What carries GPU decisions out: a simulated cluster, real processes, Ray. One seam, see `beamer.gpu.engine`."""
