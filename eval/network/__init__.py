"""The study of network policies: mean stage completion times on drawn searches, as a controller runs policies and in theory."""
