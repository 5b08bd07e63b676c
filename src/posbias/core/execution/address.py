"""Where a Ray cluster is, found out within seconds: Ray itself would try for minutes."""

import os
import re
import socket
import time

from posbias.core.arguments import shortened
from posbias.core.errors import ClusterError, nearest
from posbias.core.interruption import KEPT
from posbias.core.lazy import need

PATIENCE = 3.0
"""Seconds in which a cluster has to answer."""
GONE = 15.0
"""Seconds after which a head that does not answer is taken for lost: Ray ends the process that waits, after 60."""
_ADDRESS = re.compile(r"(?P<client>ray://)?(?P<host>\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]+):(?P<port>[0-9]{1,5})")
_START = "`ray start --head` starts one on this machine"


def find_cluster(address: str) -> str:
    """The address to give to Ray: "local", HOST:PORT or ray://HOST:PORT, where something answers.

    `address` may also be "auto": what RAY_ADDRESS says, else the cluster this machine is part of. Raises
    `ClusterError` for an address that is spelt wrongly or where no cluster answers, `MissingPackageError` without
    Ray.
    """
    need("ray", work="a cluster", extra="cluster")
    if address == "local":
        return address
    if address != "auto":
        return _answering(address, "ray")
    if os.environ.get("RAY_ADDRESS", "auto") not in ("", "auto"):
        return _answering(os.environ["RAY_ADDRESS"], "RAY_ADDRESS")
    return _answering(_running_here(), "ray")


class Head:
    """The head of a cluster at HOST:PORT, which is asked now and then whether it is still there."""

    def __init__(self, where: str):
        host, _, port = where.rpartition(":")
        self._place, self._where = (host.strip("[]"), int(port)), where
        self._asked = self._answered = time.monotonic()

    def need(self) -> None:
        """Raise `ClusterError` when it has not answered for long."""
        now = time.monotonic()
        if now - self._asked < PATIENCE:
            return
        self._asked = now
        if self.answers():
            self._answered = now
        elif now - self._answered > GONE:
            raise self.lost()

    def answers(self) -> bool:
        """Whether somebody listens there."""
        try:
            socket.create_connection(self._place, timeout=PATIENCE).close()
        except OSError:
            return False
        return True

    def lost(self) -> ClusterError:
        """What is said of a head that is gone."""
        return ClusterError(f"ray: the head at {self._where} is gone and the cluster with it; {KEPT}")


def _running_here() -> str:
    """The address of the cluster that this machine is part of."""
    from ray._private import services

    try:
        found = services.canonicalize_bootstrap_address_or_die("auto")
    except ConnectionError as error:
        if "multiple" in str(error):
            raise ClusterError(
                f"ray: auto given, and several clusters run here ({_one_line(error)}); HOST:PORT needed"
            ) from None
        found = None
    if found is None or found == "auto":
        raise ClusterError(
            f"ray: auto given, and no cluster runs on this machine; {_START}, `ray start --address HOST:PORT` "
            "joins one, ray://HOST:10001 reaches one from outside"
        )
    return found


def _answering(address: str, name: str) -> str:
    """The address, if something answers there that may be Ray."""
    spelt = _ADDRESS.fullmatch(address)
    if spelt is None or not 0 < int(spelt["port"]) < 65536:
        raise ClusterError(
            f"{name}: {shortened(address)} given, "
            "auto, local, HOST:PORT (such as head:6379) or ray://HOST:PORT (such as "
            f"ray://head:10001) needed{nearest(address, ['auto', 'local'])}"
        )
    host, port = spelt["host"].strip("[]"), int(spelt["port"])
    try:
        socket.create_connection((host, port), timeout=PATIENCE).close()
    except OSError as error:
        wrong = {socket.gaierror: "there is no such host", TimeoutError: f"no answer within {PATIENCE:.0f} s"}
        why = next(
            (words for kind, words in wrong.items() if isinstance(error, kind)), error.strerror or error
        )
        raise ClusterError(
            f"{name}: no cluster can be reached at {address} ({why}); `ray status` on one of its machines says "
            f"its address, {_START}"
        ) from None
    _need_ray_behind(f"{spelt['host']}:{port}", address, name, client=bool(spelt["client"]))
    return address


def _need_ray_behind(target: str, address: str, name: str, client: bool) -> None:
    """Refuse a port where something listens that is not Ray, or Ray's other port."""
    try:
        import grpc
    except ImportError:
        if client:
            need("grpc", work=address, extra="cluster")
        return
    with grpc.insecure_channel(target, options=[("grpc.enable_http_proxy", 0)]) as channel:
        services = ["/ray.rpc.NodeInfoGcsService/CheckAlive", "/ray.rpc.RayletDriver/ClusterInfo"]
        own, other = services[::-1] if client else services
        if _speaks(channel, own):
            return
        if _speaks(channel, other):
            right = target if client else f"ray://{target}"
            raise ClusterError(
                f"{name}: {address} given, {right} needed (Ray listens there, in its other way)"
            )
        raise ClusterError(
            f"{name}: what listens at {address} is no Ray cluster; `ray status` on one of its machines says its "
            "address"
        )


def _speaks(channel: object, service: str) -> bool:
    """Whether a gRPC server knows a method."""
    import grpc

    try:
        channel.unary_unary(service)(b"", timeout=PATIENCE)  # type: ignore[attr-defined]
    except grpc.RpcError as error:
        unknown = (
            grpc.StatusCode.UNIMPLEMENTED,
            grpc.StatusCode.UNAVAILABLE,
            grpc.StatusCode.DEADLINE_EXCEEDED,
        )
        return error.code() not in unknown  # type: ignore[attr-defined]
    return True


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
