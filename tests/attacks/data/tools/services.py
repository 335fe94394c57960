#!/usr/bin/env python3
"""Host-side canary services of the fixture (loopback / unix only). Logs every hit to $HX/state/hits.log; ends with its parent."""
import ctypes, os, selectors, signal, socket, sys, time, json
FX = sys.argv[1]; HX = os.path.dirname(FX) + "/host"
CANARY = open(HX + "/state/canary").read().strip(); TAG = CANARY.rpartition("-")[2]   # TAG: two fixtures may stand at once
log = open(HX + "/state/hits.log", "a", buffering=1)
sel = selectors.DefaultSelector()
ports = {}
def hit(kind, data): log.write("%s %r\n" % (kind, data[:200]))
def tcp(kind, fam, addr):
    s = socket.socket(fam, socket.SOCK_STREAM); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        s.bind(addr); s.listen(64); s.setblocking(False); sel.register(s, selectors.EVENT_READ, ("acc", kind)); return s
    except OSError as e:
        print("skip", kind, e); return None
def dgram(kind, fam, addr):
    s = socket.socket(fam, socket.SOCK_DGRAM)
    try:
        s.bind(addr); s.setblocking(False); sel.register(s, selectors.EVENT_READ, ("dg", kind)); return s
    except OSError as e:
        print("skip", kind, e); return None
s = tcp("tcp4", socket.AF_INET, ("127.0.0.1", 0)); ports["TCP"] = s.getsockname()[1]
tcp("tcp4b", socket.AF_INET, ("127.0.0.2", ports["TCP"]))
tcp("tcp6", socket.AF_INET6, ("::1", ports["TCP"]))
s = dgram("udp4", socket.AF_INET, ("127.0.0.1", 0)); ports["UDP"] = s.getsockname()[1]
dgram("udp6", socket.AF_INET6, ("::1", ports["UDP"]))
s = dgram("dns", socket.AF_INET, ("127.0.0.1", 0)); ports["DNS"] = s.getsockname()[1]
for p in (FX + "/run/svc.sock", FX + "/ws/.svc.sock", FX + "/run/log.sock", FX + "/run/docker.sock"):
    if os.path.exists(p): os.unlink(p)
tcp("unix-outside", socket.AF_UNIX, FX + "/run/svc.sock"); os.chmod(FX + "/run/svc.sock", 0o777)
tcp("unix-ws", socket.AF_UNIX, FX + "/ws/.svc.sock"); os.chmod(FX + "/ws/.svc.sock", 0o777)
tcp("docker-like", socket.AF_UNIX, FX + "/run/docker.sock"); os.chmod(FX + "/run/docker.sock", 0o777)
dgram("unix-dgram", socket.AF_UNIX, FX + "/run/log.sock"); os.chmod(FX + "/run/log.sock", 0o777)
tcp("abstract", socket.AF_UNIX, "\0secfx-abs-" + TAG)
ports["VSOCK"] = 0
try:
    v = tcp("vsock", socket.AF_VSOCK, (1, 47001))   # VMADDR_CID_LOCAL only: never leaves the VM
    ports["VSOCK"] = 47001 if v else 0
except Exception as e:
    print("no vsock loopback", e)
# SysV shm + POSIX shm canaries
SHM = "/dev/shm/secfx-" + TAG
libc = ctypes.CDLL(None, use_errno=True); libc.shmat.restype = ctypes.c_void_p
shmkey = int(TAG[:7], 16) | 1   # never IPC_PRIVATE
shmid = libc.shmget(shmkey, 4096, 0o1666)
if shmid >= 0:
    p = libc.shmat(shmid, None, 0); ctypes.memmove(p, CANARY.encode() + b"\0", len(CANARY) + 1)
with open(SHM, "w") as f: f.write(CANARY)
os.chmod(SHM, 0o666)
ports["SHMID"] = shmid; ports["SHMKEY"] = shmkey
def bye(*_):
    libc.shmctl(shmid, 0, None)
    try: os.unlink(SHM)
    except OSError: pass
    os._exit(0)
signal.signal(signal.SIGTERM, bye); signal.signal(signal.SIGINT, bye); libc.prctl(1, signal.SIGTERM)   # PR_SET_PDEATHSIG
json.dump(ports, open(HX + "/state/ports.tmp", "w")); os.rename(HX + "/state/ports.tmp", HX + "/state/ports.json")
print("ready", ports, flush=True)
while True:
    for key, _ in sel.select(5):
        k, kind = key.data
        try:
            if k == "acc":
                c, _a = key.fileobj.accept(); c.settimeout(1); hit(kind, b"connect")
                try: hit(kind, c.recv(500)); c.sendall(b"REPLY-" + CANARY.encode() + b"\n")
                except OSError: pass
                c.close()
            else:
                d = key.fileobj.recv(2000); hit(kind, d)
        except OSError as e:
            hit("err", str(e).encode())
