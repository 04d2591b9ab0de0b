"""Over time: watermarks, windows, correlations, suppression.

Pure: times and events are arguments, state is packed and restored as bytes.
Imports: decode, engine, model, plan, stream.
"""
