"""Records as they are written: launches, plans and seals of campaigns, images, machines, single measurements."""
