from types import SimpleNamespace

g5 = SimpleNamespace(large=1, medium=2)
print(g5.large, g5.medium)
NC12 = 3
NV48 = {"ND6": NC12}
