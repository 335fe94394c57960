#!/usr/bin/env python3
"""A host process outside of the sandbox: has a secret in environ, argv, memory and an open fd; logs signals; ends with its parent."""
import ctypes, os, signal, sys, time
FX = sys.argv[1]; HX = os.path.dirname(FX) + "/host"
secret_in_memory = os.environ["SECFX_VICTIM"] + "-heap"
keep = open(FX + "/secrets/id_rsa")
def h(s, f):
    with open(HX + "/state/signals.log", "a") as l: l.write("%d\n" % s)
for s in (signal.SIGUSR1, signal.SIGHUP, signal.SIGTERM, signal.SIGINT, signal.SIGCONT, signal.SIGALRM): signal.signal(s, h)
ctypes.CDLL(None).prctl(1, signal.SIGKILL)   # PR_SET_PDEATHSIG
open(HX + "/state/victim.ready", "w").close()
while True: time.sleep(1)
