"""Everything OpenFlow: which rules a plan means, and the server that installs them; the only place that imports os-ken."""
