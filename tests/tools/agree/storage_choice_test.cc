#include "tools/agree/storage_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reference/spec/error.h"

namespace kvcheck {
namespace {

using testing::HasSubstr;

std::string MessageOf(const std::vector<std::string>& formats,
                      const std::vector<std::string>& layouts) {
  try {
    ChooseStorages(formats, layouts, PathFault::kNone, 64);
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

TEST(ChooseStorages, KAndVMayHaveFormatsOfTheirOwn) {
  const auto storages = ChooseStorages({"q8_0,q4_0", "q8_0"}, {}, PathFault::kNone, 64);
  ASSERT_EQ(storages.size(), 2u);
  EXPECT_EQ(PrintFormats(storages[0]), "q8_0,q4_0");
  EXPECT_EQ(PrintFormats(storages[1]), "q8_0");
  EXPECT_EQ(PrintLayout(storages[0]), "linear");
}

TEST(ChooseStorages, EveryFormatComesOncePerLayout) {
  const auto storages = ChooseStorages({"q8_0", "q8_0"}, {"linear", "ring"}, PathFault::kNone, 64);
  ASSERT_EQ(storages.size(), 2u);
  EXPECT_FALSE(storages[0].ring);
  EXPECT_TRUE(storages[1].ring);
}

TEST(ChooseStorages, NothingMeansEveryKindThatEnginesDeploy) {
  const auto storages = ChooseStorages({}, {}, PathFault::kNone, 64);
  std::string all;
  for (const PathStorage& storage : storages) all += PrintFormats(storage) + "\n";
  for (const char* kind : {"f16",
                           "f8e4m3fn",
                           "f8e5m2",
                           "fp8:e4m3fn:token:f32",
                           "fp8:e4m3fn:token:bf16",
                           "int8:",
                           "int4zp:",
                           "affine:2",
                           "affine:3",
                           "affine:4",
                           "affine:5",
                           "affine:6",
                           "affine:8",
                           "affine:8:g64:bf16,affine:4:g64:bf16\n",
                           "q8_0",
                           "q4_0",
                           "q4_1",
                           "q5_0",
                           "q5_1",
                           "iq4_nl",
                           "hadamard:64:q8_0",
                           "hadamard:64:q4_0",
                           "mxfp8",
                           "mxfp4",
                           "nvfp4",
                           "turboquant:4",
                           "turboquant:4:g64:mlx_vlm:bf16,turboquant:3",
                           "turboquant:3",
                           "turboquant:2"}) {
    EXPECT_THAT(all, HasSubstr(kind));
  }
}

TEST(ChooseStorages, WhatIsNotKnownIsRefused) {
  EXPECT_THAT(MessageOf({"q8_0"}, {"spiral"}), HasSubstr("no layout is called 'spiral'"));
  EXPECT_THAT(MessageOf({"q*,q4_0"}, {}), HasSubstr("K and V have one each"));
  EXPECT_NE(MessageOf({"q9_9"}, {}), "");
}

TEST(ParsePath, KnowsEveryFaultByItsName) {
  EXPECT_EQ(ParsePath("optimized"), PathFault::kNone);
  for (const PathFaultRow& row : PathFaults()) {
    EXPECT_EQ(ParsePath("fault:" + std::string(row.name)), row.fault);
    EXPECT_EQ(PrintPath(row.fault), "fault:" + std::string(row.name));
  }
  EXPECT_THROW(ParsePath("fault:none_such"), Error);
}

}  // namespace
}  // namespace kvcheck
