"""What programs do with a realtime API, by the openai client and by a plain WebSocket client, against a
gateway in front of realtime_server.py.

Usage: realtime_client.py URL. Fails with a traceback; prints `ok` at the end.
"""

import asyncio
import base64
import json
import os
import sys

import websockets
from openai import AsyncOpenAI

url = sys.argv[1]
socket_url = url.replace("http://", "ws://") + "/v1/realtime"
key = {"Authorization": "Bearer key"}


async def conversation(turns):
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key="key")
    async with client.realtime.connect(model="voice") as connection:
        first = await connection.recv()
        assert first.type == "session.created", first
        assert first.session.model == "/v1/realtime?model=voice", first
        for turn in range(1, turns + 1):
            audio = base64.b64encode(bytes(48_000)).decode()
            await connection.input_audio_buffer.append(audio=audio)
            await connection.response.create()
            text = ""
            async for event in connection:
                if event.type == "response.done":
                    break
                text += event.delta
            assert text == f"You sent {48_000 * turn} bytes", text


async def plain():
    async with websockets.connect(socket_url, additional_headers=key, max_size=None) as socket:
        assert "x-request-id" in socket.response.headers, socket.response.headers
        await socket.recv()
        # Large ones, all at once, both ways at the same time.
        sent = [os.urandom(1 << 20) for _ in range(8)]

        async def send():
            for message in sent:
                await socket.send(message)

        sending = asyncio.create_task(send())
        for message in sent:
            assert await socket.recv() == message
        await sending
        # A pong comes back, by itself and among messages.
        await (await socket.ping())
        await socket.send(json.dumps({"type": "close"}))
        try:
            await socket.recv()
        except websockets.ConnectionClosed as closed:
            assert (closed.rcvd.code, closed.rcvd.reason) == (4000, "as you wish"), closed
        else:
            raise AssertionError("it stays open")


async def refused():
    for address, status in [
        (socket_url, 401),
        (url.replace("http://", "ws://") + "/v1/models/voice", 426),
        (url.replace("http://", "ws://") + "/v1/unknown", 404),
    ]:
        try:
            await websockets.connect(address)
        except websockets.InvalidStatus as error:
            assert error.response.status_code == status, error
        else:
            raise AssertionError(f"{address} is open")


async def main():
    await asyncio.gather(plain(), refused(), *(conversation(20) for _ in range(8)))


asyncio.run(main())
print("ok")
