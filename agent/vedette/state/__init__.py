"""Over time: event time and its watermark, windows, correlations, suppression. Pure: times and events are arguments."""
