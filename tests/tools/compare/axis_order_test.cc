// The order of axes by labels and by extents.

#include "tools/compare/axis_order.h"

#include <gtest/gtest.h>

#include <numeric>

namespace kvcheck {
namespace {

const Shape kRows = {{"B", 2}, {"Hq", 4}, {"L", 5}, {"Dk", 8}};
const Shape kOneRow = {{"B", 1}, {"Hq", 4}, {"L", 5}, {"Dk", 8}};

Shape Of(const std::vector<int64_t>& extents) { return Shape::Unnamed(extents); }

std::vector<std::string> Fits(const Shape& stored, const Shape& wanted) {
  std::vector<std::string> texts;
  for (const AxisOrder& order : OrdersThatFit(stored, wanted)) {
    texts.push_back(AxesText(order, wanted));
  }
  return texts;
}

using Texts = std::vector<std::string>;

TEST(OrdersThatFit, AreThoseOftenMet) {
  EXPECT_EQ(Fits(Of({2, 4, 5, 8}), kRows), Texts{"B,Hq,L,Dk"});
  EXPECT_EQ(Fits(Of({2, 5, 4, 8}), kRows), Texts{"B,L,Hq,Dk"});
  EXPECT_EQ(Fits(Of({2, 5, 32}), kRows), Texts{"B,L,Hq,Dk"});
  EXPECT_EQ(Fits(Of({4, 5, 8}), kOneRow), Texts{"B,Hq,L,Dk"});
  EXPECT_EQ(Fits(Of({5, 4, 8}), kOneRow), Texts{"B,L,Hq,Dk"});
  EXPECT_EQ(Fits(Of({1, 5, 1, 4, 8}), kOneRow), Texts{"B,L,Hq,Dk"});
  EXPECT_EQ(Fits(Of({5, 32}), kOneRow), Texts{"B,L,Hq,Dk"});
  for (const auto& wrong :
       {std::vector<int64_t>{2, 4, 8, 5}, {4, 2, 5, 8}, {2, 4, 40}, {320}, {}}) {
    EXPECT_EQ(Fits(Of(wrong), kRows), Texts{}) << ToString(Of(wrong));
  }
}

TEST(OrdersThatFit, AreTwoWhereTheExtentsDoNotTell) {
  const Shape square = {{"B", 2}, {"Hq", 4}, {"L", 4}, {"Dk", 8}};
  EXPECT_EQ(Fits(Of({2, 4, 4, 8}), square), (Texts{"B,Hq,L,Dk", "B,L,Hq,Dk"}));
  // One token, or one head: both orders are the same bytes.
  const Shape decode = {{"B", 2}, {"Hq", 4}, {"L", 1}, {"Dk", 8}};
  EXPECT_EQ(Fits(Of({2, 1, 4, 8}), decode).size(), 1u);
  EXPECT_EQ(Fits(Of({2, 4, 8}), decode).size(), 1u);
}

TEST(OrdersThatFit, OfAMaskIsItsOwnAlone) {
  const Shape mask = {{"B", 2}, {"Hq", 5}, {"L", 4}, {"T", 9}};
  EXPECT_EQ(Fits(Of({2, 5, 4, 9}), mask).size(), 1u);
  EXPECT_EQ(Fits(Of({2, 4, 5, 9}), mask).size(), 0u);
  const Shape lse = {{"B", 2}, {"Hq", 4}, {"L", 5}};
  EXPECT_EQ(Fits(Of({2, 5, 4}), lse), Texts{"B,L,Hq"});
}

TEST(AxisLabels, MeanTheAxesOfTheCase) {
  const auto order = [](const char* labels, const Shape& stored, const Shape& wanted) {
    const auto found = OrderOfLabels(SplitAxisLabels(labels), stored, wanted);
    return found ? AxesText(*found, wanted) : "none";
  };
  EXPECT_EQ(order("B,T,H,D", Of({2, 5, 4, 8}), kRows), "B,L,Hq,Dk");
  EXPECT_EQ(order("bshd", Of({2, 5, 4, 8}), kRows), "B,L,Hq,Dk");
  EXPECT_EQ(order("batch,seq_len,heads,head_dim", Of({2, 5, 4, 8}), kRows), "B,L,Hq,Dk");
  EXPECT_EQ(order("T,H,D", Of({5, 4, 8}), kOneRow), "B,L,Hq,Dk");
  EXPECT_EQ(order("T,H*D", Of({5, 32}), kOneRow), "B,L,Hq,Dk");
  EXPECT_EQ(order("D,T,H,B", Of({8, 5, 4, 2}), kRows), "Dk,L,Hq,B");
  EXPECT_EQ(order("1,T,H,D", Of({1, 5, 4, 8}), kOneRow), "B,L,Hq,Dk");
  // Other extents, twice the same, none that is known, too few, and a token of two.
  EXPECT_EQ(order("B,T,H,D", Of({2, 4, 5, 8}), kRows), "none");
  EXPECT_EQ(order("B,T,T,D", Of({2, 5, 5, 8}), kRows), "none");
  EXPECT_EQ(order("B,T,H,X", Of({2, 5, 4, 8}), kRows), "none");
  EXPECT_EQ(order("T,H,D", Of({2, 5, 4, 8}), kRows), "none");
  EXPECT_EQ(order("T,H,D", Of({5, 4, 8}), kRows), "none");
  const Shape mask = {{"B", 1}, {"Hq", 1}, {"L", 5}, {"T", 5}};
  EXPECT_EQ(order("T,L", Of({5, 5}), mask), "B,Hq,T,L");
  EXPECT_EQ(order("S,L", Of({5, 5}), mask), "none");
}

TEST(InOwnOrder, MovesEveryElement) {
  const Shape stored = Of({2, 5, 4, 8});
  Tensor tensor(DType::kUInt16, stored);
  std::iota(tensor.As<uint16_t>(), tensor.As<uint16_t>() + 320, uint16_t{0});
  const AxisOrder order = OrdersThatFit(stored, kRows).front();
  const Tensor own = InOwnOrder(tensor, order, kRows);
  EXPECT_EQ(own.shape, kRows);
  for (int64_t element = 0; element < 320; ++element) {
    const std::vector<int64_t> at = kRows.Coordinates(element);
    EXPECT_EQ(own.As<uint16_t>()[element], ((at[0] * 5 + at[2]) * 4 + at[1]) * 8 + at[3]);
  }
}

}  // namespace
}  // namespace kvcheck
