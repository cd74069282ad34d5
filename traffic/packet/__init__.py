"""Packets of RoCE v2 and MRC: headers, ICRC, the fast codec, and Scapy layers to check and teach with."""
