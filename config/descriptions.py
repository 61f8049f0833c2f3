"""What each field of the stack file says of itself: the text below it in the source.

Read where somebody wants it, for the JSON schema and for some complaints: pydantic's own way
(`use_attribute_docstrings`) reads all sources at each start, which was a third of the time that `config` takes to load.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping
from functools import cache
from itertools import pairwise

from pydantic import BaseModel


@cache
def descriptions(model: type[BaseModel]) -> Mapping[str, str]:
    """Field -> its text, with those of the models that it inherits from; fields without one are missing."""
    found: dict[str, str] = {}
    for one in reversed(model.__mro__[: model.__mro__.index(BaseModel)]):
        (written,) = ast.parse(textwrap.dedent(inspect.getsource(one))).body
        assert isinstance(written, ast.ClassDef)
        for field, below in pairwise(written.body):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[name] = inspect.cleandoc(text)
    return found
