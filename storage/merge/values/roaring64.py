"""Unites 64-bit roaring bitmaps in the format of Java's Roaring64Bitmap.

The bytes are the dump of a data structure: a radix tree over the upper 48 bits of the values. Its leaves refer to
places in a list of containers, which contain the lower 16 bits. The width of a node and the place of a container depend
on the order of insertion. So values must be inserted in Java's order, to write the same bytes as Java.

    bitmap      0 if empty; otherwise 1, tree, containers. Numbers are little-endian.
    tree        number of keys u64; nodes, parents first, children ordered by their byte
    node        kind u8, number of children u16, length of prefix u8, prefix; then, by kind,
                0: up to 4 children: their bytes in reverse order, padded with 0
                1: up to 16 children: the same in two halves
                2: up to 48 children: for each byte the slot of its child, or 255, in reverse order by groups of eight
                3: up to 256 children: a bit for each byte
                4: a leaf: key of 6 bytes, place of its container u64
    containers  1 u32, 0xfe, length of the list u32; for each place 0 if unused, or 1, kind u8, number of values u32,
    and
                the content as in the portable form (kind 0: runs, 1: bitmap, 2: array); number of used containers u64,
                0 u32, last place u32

Source: RoaringBitmap 1.2.1 `art/*.java`, `longlong/HighLowContainer.java`, `Roaring64Bitmap.or`; Java
`utils/RoaringBitmap64.java`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from pyroaring import BitMap

_KEY_BYTES: Final = 6
_LEAF: Final = 4
_CAPACITY: Final = (4, 16, 48, 256)  # maximum number of children of a node, by kind
_NO_SLOT: Final = 255
_RUNS, _BITMAP, _ARRAY = 0, 1, 2
_PORTABLE_WITH_RUNS, _PORTABLE = 12347, 12346  # cookies of the 32-bit form


@dataclass(slots=True)
class RoaringUnion64:
    """A `UnionAccumulator` of bitmaps.

    Java optimises all containers after each union. Here a container is optimised before it is united with another one,
    and at the end. The optimisation before a union can't be left out: it changes the resulting bytes if runs and single
    values take the same space, because a container keeps its kind then.
    """

    bitmap: _Roaring64
    has_united: bool = False

    @classmethod
    def of(cls, serialised: bytes) -> RoaringUnion64:
        return cls(_parsed(serialised))

    def add(self, serialised: bytes) -> None:
        united, other = self.bitmap, _parsed(serialised)
        for key, place in other.leaves():
            container = other.container(place)
            known = united.place_of(key)
            if known is None:
                united.put(key, container)
            else:
                existing = united.container(known)
                united.containers[known] = (existing.optimised() if self.has_united else existing).united(container)
        self.has_united = True

    def serialised(self) -> bytes:
        self.bitmap.containers = [None if c is None else c.optimised() for c in self.bitmap.containers]
        return self.bitmap.serialised()


@dataclass(frozen=True, slots=True)
class _Container:
    kind: int
    count: int
    content: bytes

    def united(self, other: _Container) -> _Container:
        return _Container.of(self._bitmap() | other._bitmap())

    def optimised(self) -> _Container:
        """Convert an array or a bitmap to runs if they are shorter, and do not change runs, like Java."""
        return self if self.kind == _RUNS else _Container.of(self._bitmap())

    def _bitmap(self) -> BitMap:
        """Return a 32-bit bitmap with this container only."""
        key = struct.pack("<HH", 0, self.count - 1)
        if self.kind == _RUNS:
            head = struct.pack("<IB", _PORTABLE_WITH_RUNS, 1) + key
        else:
            head = struct.pack("<II", _PORTABLE, 1) + key + struct.pack("<I", 16)
        return BitMap.deserialize(head + self.content)

    @classmethod
    def of(cls, bitmap: BitMap) -> _Container:
        bitmap.run_optimize()
        portable = bitmap.serialize()
        if struct.unpack_from("<H", portable)[0] == _PORTABLE_WITH_RUNS:
            return cls(_RUNS, len(bitmap), portable[9:])
        return cls(_ARRAY if len(bitmap) <= 4096 else _BITMAP, len(bitmap), portable[16:])


@dataclass(slots=True)
class _Leaf:
    key: bytes
    place: int


@dataclass(slots=True)
class _Node:
    """An inner node of the tree.

    slots: byte -> slot of its child in the node's array, for kind 2.
    """

    kind: int
    prefix: bytes
    children: dict[int, _Node | _Leaf] = field(default_factory=dict)
    slots: dict[int, int] = field(default_factory=dict)

    def add(self, byte: int, child: _Node | _Leaf) -> None:
        """Add a new child. A full node becomes a node of the next kind."""
        if len(self.children) == _CAPACITY[self.kind]:
            self.kind += 1
            self.slots = {known: slot for slot, known in enumerate(sorted(self.children))} if self.kind == 2 else {}
        if self.kind == 2:
            taken = set(self.slots.values())
            count = len(self.children)
            self.slots[byte] = count if count not in taken else min(set(range(48)) - taken)
        self.children[byte] = child

    def insert(self, leaf: _Leaf, depth: int) -> _Node:
        """Insert a leaf. Returns the node that replaces this one.

        depth: the number of key bytes on the path to this node.
        """
        rest = leaf.key[depth:]
        common = _common_length(self.prefix, rest)
        if common < len(self.prefix):
            parent = _Node(0, self.prefix[:common])
            parent.add(self.prefix[common], self)
            self.prefix = self.prefix[common + 1 :]
            parent.add(rest[common], leaf)
            return parent
        byte = rest[common]
        match self.children.get(byte):
            case None:
                self.add(byte, leaf)
            case _Node() as child:
                self.children[byte] = child.insert(leaf, depth + common + 1)
            case _Leaf() as child:
                self.children[byte] = _split(child, leaf, depth + common + 1)
        return self

    def body(self) -> bytes:
        keys = sorted(self.children)
        match self.kind:
            case 0:
                return bytes(keys).ljust(4, b"\0")[::-1]
            case 1:
                padded = bytes(keys).ljust(16, b"\0")
                return padded[7::-1] + padded[:7:-1]
            case 2:
                slots = bytes(self.slots.get(byte, _NO_SLOT) for byte in range(256))
                return b"".join(slots[at : at + 8][::-1] for at in range(0, 256, 8))
            case _:
                return sum(1 << byte for byte in keys).to_bytes(32, "little")


def _split(known: _Leaf, leaf: _Leaf, depth: int) -> _Node:
    common = _common_length(known.key[depth:], leaf.key[depth:])
    parent = _Node(0, leaf.key[depth : depth + common])
    parent.add(known.key[depth + common], known)
    parent.add(leaf.key[depth + common], leaf)
    return parent


def _common_length(one: bytes, other: bytes) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


@dataclass(slots=True)
class _Roaring64:
    """A bitmap: the tree and its containers.

    containers: the list of containers, None for unused places. It grows by half.
    last: the last used place, -1 if none is used.
    """

    root: _Node | _Leaf | None = None
    containers: list[_Container | None] = field(default_factory=list)
    last: int = -1

    def leaves(self) -> Iterator[tuple[bytes, int]]:
        """Yield the keys in order, with the places of their containers."""
        return ((leaf.key, leaf.place) for leaf in _nodes(self.root) if isinstance(leaf, _Leaf))

    def place_of(self, key: bytes) -> int | None:
        node, depth = self.root, 0
        while isinstance(node, _Node):
            if key[depth : depth + len(node.prefix)] != node.prefix:
                return None
            depth += len(node.prefix) + 1
            node = node.children.get(key[depth - 1])
        return node.place if node is not None and node.key == key else None

    def container(self, place: int) -> _Container:
        found = self.containers[place]
        if found is None:
            raise ValueError(f"container {place} is missing")
        return found

    def put(self, key: bytes, container: _Container) -> None:
        self.last += 1
        if self.last >= len(self.containers):
            length = max(self.last + 1, len(self.containers) * 3 // 2)
            self.containers += [None] * (length - len(self.containers))
        self.containers[self.last] = container
        leaf = _Leaf(key, self.last)
        match self.root:
            case None:
                self.root = leaf
            case _Leaf() as known:
                self.root = _split(known, leaf, 0)
            case node:
                self.root = node.insert(leaf, 0)

    def serialised(self) -> bytes:
        if self.root is None:
            return b"\0"
        count = sum(container is not None for container in self.containers)
        parts = [b"\1", struct.pack("<Q", sum(1 for _ in self.leaves()))]
        for node in _nodes(self.root):
            if isinstance(node, _Leaf):
                parts += (struct.pack("<BHB", _LEAF, 0, 0), node.key, struct.pack("<Q", node.place))
            else:
                parts += (
                    struct.pack("<BHB", node.kind, len(node.children), len(node.prefix)),
                    node.prefix,
                    node.body(),
                )
        parts.append(struct.pack("<IBI", 1, 0xFE, len(self.containers)))
        for container in self.containers:
            if container is None:
                parts.append(b"\0")
            else:
                parts += (struct.pack("<BBI", 1, container.kind, container.count), container.content)
        parts.append(struct.pack("<QII", count, 0, self.last))
        return b"".join(parts)


def _nodes(node: _Node | _Leaf | None) -> Iterator[_Node | _Leaf]:
    """Yield the nodes, parents first, children ordered by their byte."""
    if node is not None:
        yield node
    if isinstance(node, _Node):
        for byte in sorted(node.children):
            yield from _nodes(node.children[byte])


class _Bytes:
    """Reads bytes in sequence. Raises ValueError if they end early."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        if len(taken) < count:
            raise ValueError("the bytes end early")
        self._at += count
        return taken

    def numbers(self, form: str) -> tuple[int, ...]:
        return struct.unpack(form, self.take(struct.calcsize(form)))


def _parsed(data: bytes) -> _Roaring64:
    source = _Bytes(data)
    if source.take(1) == b"\0":
        return _Roaring64()
    source.take(8)
    root = _parsed_node(source)
    lists, mark, length = source.numbers("<IBI")
    if lists != 1 or mark != 0xFE:
        raise ValueError("its containers lie in more than one list")
    containers = [_parsed_container(source) if source.take(1) == b"\1" else None for _ in range(length)]
    _, _, last = source.numbers("<QII")
    return _Roaring64(root, containers, last)


def _parsed_node(source: _Bytes) -> _Node | _Leaf:
    kind, count, prefix_length = source.numbers("<BHB")
    prefix = source.take(prefix_length)
    if kind == _LEAF:
        return _Leaf(source.take(_KEY_BYTES), *source.numbers("<Q"))
    node = _Node(kind, prefix)
    match kind:
        case 0:
            keys = list(source.take(4)[::-1])[:count]
        case 1:
            keys = list(source.take(8)[::-1] + source.take(8)[::-1])[:count]
        case 2:
            slots = b"".join(source.take(8)[::-1] for _ in range(32))
            keys = [byte for byte in range(256) if slots[byte] != _NO_SLOT]
            node.slots = {byte: slots[byte] for byte in keys}
        case 3:
            bits = int.from_bytes(source.take(32), "little")
            keys = [byte for byte in range(256) if bits >> byte & 1]
        case _:
            raise ValueError(f"there is no node of kind {kind}")
    node.children = {byte: _parsed_node(source) for byte in keys}
    return node


def _parsed_container(source: _Bytes) -> _Container:
    kind, count = source.numbers("<BI")
    match kind:
        case 0:  # runs
            length = source.take(2)
            return _Container(kind, count, length + source.take(4 * int.from_bytes(length, "little")))
        case 1:  # bitmap
            return _Container(kind, count, source.take(8192))
        case 2:  # array
            return _Container(kind, count, source.take(2 * count))
        case _:
            raise ValueError(f"there is no container of kind {kind}")
