import asyncio
import time

from controller.event_loop.wake_timer import WakeTimer


def test_what_takes_long_leaves_time_for_the_rest() -> None:
    async def play() -> None:
        loop, ended, began = asyncio.get_running_loop(), [], []

        def act() -> None:
            began.append(loop.time())
            time.sleep(0.02)
            ended.append(loop.time())
            timer.within(0.0)  # as soon as possible

        timer = WakeTimer(act, pause=2.0, used_s=time.monotonic)
        timer.within(0.0)
        while len(ended) < 4:
            await asyncio.sleep(0.001)
        timer.cancel()
        for i in range(3):
            assert began[i + 1] - ended[i] >= 2.0 * (ended[i] - began[i])

    asyncio.run(play())


def test_it_runs_once_at_the_earliest_of_the_times_asked_for() -> None:
    async def play() -> None:
        ran: list[float] = []
        loop = asyncio.get_running_loop()
        timer = WakeTimer(lambda: ran.append(loop.time()))
        began = loop.time()
        timer.within(30.0)
        timer.within(0.01)
        timer.within(20.0)
        while not ran:
            await asyncio.sleep(0.001)
        assert ran[0] - began >= 0.01
        await asyncio.sleep(0.02)
        assert len(ran) == 1
        timer.within(0.01)
        timer.cancel()
        await asyncio.sleep(0.02)
        assert len(ran) == 1

    asyncio.run(play())


def test_what_an_action_says_that_it_took_is_what_it_rests_after() -> None:
    """It may have waited for another one's work."""

    async def play() -> None:
        began: list[float] = []

        async def act() -> float:
            began.append(asyncio.get_running_loop().time())
            await asyncio.sleep(0.1)
            timer.within(0.0)
            return 0.0

        timer = WakeTimer(act, pause=1000.0, used_s=time.monotonic)
        timer.within(0.0)
        async with asyncio.timeout(30):  # less than it would rest after what it waited for
            while len(began) < 2:
                await asyncio.sleep(0.001)
        await timer.stop()

    asyncio.run(play())


def test_what_an_action_waited_for_is_not_rested_after() -> None:
    """A controller that gets no processor while it attaches workers attaches the next ones as soon as it gets one."""

    async def play() -> None:
        began: list[float] = []

        def act() -> None:
            began.append(asyncio.get_running_loop().time())
            time.sleep(0.1)
            timer.within(0.0)

        timer = WakeTimer(act, pause=1000.0)
        timer.within(0.0)
        async with asyncio.timeout(30):
            while len(began) < 2:
                await asyncio.sleep(0.001)
        timer.cancel()

    asyncio.run(play())


def test_what_is_stopped_is_not_begun_again() -> None:
    async def play() -> None:
        ran: list[int] = []

        async def act() -> None:
            ran.append(len(ran))
            try:
                await asyncio.sleep(30)
            finally:
                timer.within(0.0)

        timer = WakeTimer(act)
        timer.within(0.0)
        while not ran:
            await asyncio.sleep(0)
        await timer.stop()
        timer.within(0.0)
        await asyncio.sleep(0.02)
        assert ran == [0]

    asyncio.run(play())
