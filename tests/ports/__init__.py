"""Ports of networks, right ones and ones with a known fault: what the doctor is tested with."""
