import asyncio
import time

from controller.alarm import Alarm


def test_what_takes_long_leaves_time_for_the_rest() -> None:
    async def play() -> None:
        loop, ended, began = asyncio.get_running_loop(), [], []

        def act() -> None:
            began.append(loop.time())
            time.sleep(0.02)
            ended.append(loop.time())
            alarm.within(0.0)  # as soon as possible

        alarm = Alarm(act, pause=2.0)
        alarm.within(0.0)
        while len(ended) < 4:
            await asyncio.sleep(0.001)
        alarm.cancel()
        for i in range(3):
            assert began[i + 1] - ended[i] >= 2.0 * (ended[i] - began[i])

    asyncio.run(play())


def test_it_runs_once_at_the_earliest_of_the_times_asked_for() -> None:
    async def play() -> None:
        ran: list[float] = []
        loop = asyncio.get_running_loop()
        alarm = Alarm(lambda: ran.append(loop.time()))
        began = loop.time()
        alarm.within(30.0)
        alarm.within(0.01)
        alarm.within(20.0)
        while not ran:
            await asyncio.sleep(0.001)
        assert ran[0] - began >= 0.01
        await asyncio.sleep(0.02)
        assert len(ran) == 1
        alarm.within(0.01)
        alarm.cancel()
        await asyncio.sleep(0.02)
        assert len(ran) == 1

    asyncio.run(play())
