"""From stations to maps: readings at scattered places and times, and fields on grids with their uncertainty."""
