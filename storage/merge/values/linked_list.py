"""A list for the aggregation of arrays and texts. Items are added at both ends, and removed from anywhere.

The time of each operation is linear in the items that it adds or removes. So aggregation is linear in the items.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class LinkedList(Generic[T]):
    """A list of items with names.

    name_of: returns the name of an item. If several items have the same name, operations use the first one.
    """

    __slots__ = ("_begin", "_end", "_first_places", "_items", "_name_of", "_others")

    def __init__(self, name_of: Callable[[T], Hashable]) -> None:
        self._name_of = name_of
        self._items: dict[int, T] = {}  # place -> item
        self._first_places: dict[Hashable, int] = {}  # name -> the place of its first item
        self._others: dict[Hashable, deque[int]] = {}  # name -> the places of its other items
        self._begin = self._end = 0  # places are in [begin, end); a removed item leaves a gap

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        return iter(self._items_between(self._begin, self._end) if self._begin else self._items.values())

    def __contains__(self, name: Hashable) -> bool:
        return name in self._first_places

    def __getitem__(self, name: Hashable) -> T:
        return self._items[self._first_places[name]]

    def append(self, item: T) -> None:
        name, place = self._name_of(item), self._end
        if self._first_places.setdefault(name, place) != place:
            self._others.setdefault(name, deque()).append(place)
        self._items[place] = item
        self._end += 1

    def prepend(self, item: T) -> None:
        self._begin -= 1
        name, place = self._name_of(item), self._begin
        if name in self._first_places:
            self._others.setdefault(name, deque()).appendleft(self._first_places[name])
        self._first_places[name] = place
        self._items[place] = item

    def extend(self, items: Iterable[T]) -> None:
        for item in items:
            self.append(item)

    def prepend_all(self, items: list[T]) -> None:
        """Put the items in front, in their order."""
        for item in reversed(items):
            self.prepend(item)

    def replace(self, item: T) -> None:
        """Replace the item that has the same name."""
        self._items[self._first_places[self._name_of(item)]] = item

    def take(self, name: Hashable) -> T:
        """Remove the first item of this name, and return it."""
        item = self._items.pop(self._first_places.pop(name))
        if name in self._others:
            self._first_places[name] = self._others[name].popleft()
            if not self._others[name]:
                del self._others[name]
        return item

    def take_all(self, name: Hashable) -> None:
        """Remove all items of this name, if any exist."""
        while name in self._first_places:
            self.take(name)

    def take_repeated(self) -> None:
        """Remove all but the first item of each name."""
        for places in self._others.values():
            for place in places:
                del self._items[place]
        self._others.clear()

    def pop(self) -> T:
        """Remove the last item, and return it."""
        while self._end - 1 not in self._items:
            self._end -= 1
        self._end -= 1
        item = self._items.pop(self._end)
        name = self._name_of(item)
        if name not in self._others:
            del self._first_places[name]
        else:
            self._others[name].pop()
            if not self._others[name]:
                del self._others[name]
        return item

    def _items_between(self, begin: int, end: int) -> list[T]:
        items = self._items
        return [items[place] for place in range(begin, end) if place in items]
