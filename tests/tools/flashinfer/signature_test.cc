#include "tools/flashinfer/signature.h"

#include <gtest/gtest.h>

#include "reference/spec/error.h"

namespace kvcheck {
namespace {

TEST(Signature, NamesParametersInOrderWithTheirDefaults) {
  const std::vector<Parameter> expected = {
      {"self", "", true},           {"q", "", true},
      {"cache", "", true},          {"layout", "'N, (HD'", true},
      {"window_left", "-1", false}, {"out", "None", false}};
  EXPECT_EQ(ParseSignature("(self, q: torch.Tensor, cache: Union[Tensor, Tuple[Tensor, Tensor]], "
                           "layout: str = 'N, (HD', *args, window_left: int = -1, out: "
                           "Optional[torch.Tensor] = None, **kwargs) -> Tuple[Tensor, Tensor]"),
            expected);
  EXPECT_TRUE(ParseSignature("()").empty());
  // Behind a bare "*" a name is given by keyword alone; "/" is no parameter.
  EXPECT_EQ(ParseSignature("(a, /, *, b=1)"),
            (std::vector<Parameter>{{"a", "", true}, {"b", "1", false}}));
}

TEST(Signature, RefusesTextsThatAreNone) {
  for (const char* text : {"", "q, k", "(", "(q: 'a", "(q: [int)", "<unavailable>", "(a, b"}) {
    EXPECT_THROW(ParseSignature(text), Error) << text;
  }
}

}  // namespace
}  // namespace kvcheck
