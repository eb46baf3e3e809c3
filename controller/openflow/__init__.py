"""Everything OpenFlow: which rules a plan means, and the os-ken application that installs them."""
