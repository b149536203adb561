"""An engine that speaks a realtime API, by the package that vLLM's server uses too.

Usage: realtime_server.py. Prints `listening on HOST:PORT`, and serves until its standard input ends.

It wants an API key. Audio it adds up, text it answers in three pieces, binary messages it gives back, and
on `close` it closes with a code of its own.
"""

import asyncio
import base64
import http
import json
import sys

from websockets.asyncio.server import serve


def check(connection, request):
    if request.path == "/health":
        return connection.respond(http.HTTPStatus.OK, "")
    if request.headers.get("Authorization") != "Bearer key":
        return connection.respond(http.HTTPStatus.UNAUTHORIZED, "no key\n")
    return None


async def talk(socket):
    async def send(kind, **fields):
        await socket.send(json.dumps({"type": kind, "event_id": kind, **fields}))

    await send("session.created", session={"type": "realtime", "model": socket.request.path})
    audio = 0
    async for message in socket:
        if isinstance(message, bytes):
            await socket.send(message)
            continue
        event = json.loads(message)
        if event["type"] == "input_audio_buffer.append":
            audio += len(base64.b64decode(event["audio"]))
        elif event["type"] == "response.create":
            for delta in ["You ", "sent ", f"{audio} bytes"]:
                await send("response.output_text.delta", delta=delta)
            await send("response.done", response={"status": "completed"})
        elif event["type"] == "close":
            await socket.close(4000, "as you wish")


async def main():
    async with serve(talk, "127.0.0.1", 0, process_request=check, max_size=None) as server:
        host, port = server.sockets[0].getsockname()
        print(f"listening on {host}:{port}", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


asyncio.run(main())
