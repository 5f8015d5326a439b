"""Observe ranks: time, CPU use, bytes on the wire, and the records that keep them."""
