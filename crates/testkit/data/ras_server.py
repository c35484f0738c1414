"""Plays a recorded conversation with NCCL's RAS service, as a process of a job: ras_server.py RECORDING PORT [BYTES].

With BYTES it sends so many bytes of nothing in place of a report. It logs what NCCL logs of the service. With port 0 the system
gives it a free port, which is only in that log.
"""
import json
import socket
import sys
import threading

recording, port = sys.argv[1], int(sys.argv[2])
flood = int(sys.argv[3]) if len(sys.argv) > 3 else 0
reports = {True: [], False: []}
version = "2.28.9"
for line in open(recording):
    talk = json.loads(line).get("talk") or []
    if talk and (talk[-1].get("sent") or "").endswith("STATUS"):
        got = talk[-1]["got"]
        reports[got.startswith("{")].append(got)
        if not got.startswith("{"):
            version = got.split()[2]


def serve(connection, at):
    as_json = False
    with connection, connection.makefile("rwb") as stream:
        for line in stream:
            line = line.decode().strip()
            if line == "CLIENT PROTOCOL 2":
                answer = "SERVER PROTOCOL 2\n"
            elif line == "SET FORMAT json" and reports[True]:
                as_json, answer = True, "OK\n"
            elif line.startswith("TIMEOUT "):
                answer = "OK\n"
            elif line in ("STATUS", "VERBOSE STATUS"):
                if flood:
                    for _ in range(flood // 65536):
                        stream.write(b"x" * 65536)
                    return
                kind = reports[as_json]
                stream.write(kind[min(at, len(kind) - 1)].encode())
                return
            else:
                answer = f"ERROR: Unknown command {line}\n"
            stream.write(answer.encode())
            stream.flush()


with socket.create_server(("127.0.0.1", port)) as server:
    port = server.getsockname()[1]
    prefix = "vm:7:7 [0] NCCL INFO"
    print(f"{prefix} NCCL version {version}+cuda13.0", flush=True)
    print(f"{prefix} RAS client listening socket at 127.0.0.1<{port}>", flush=True)
    at = 0
    while True:
        connection, _ = server.accept()
        threading.Thread(target=serve, args=(connection, at), daemon=True).start()
        at += 1
