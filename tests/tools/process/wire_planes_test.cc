// Planes of stored vectors on the pipe and back, a parameter of the whole tensor among them.

#include "tools/process/wire_planes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "tools/process/message_frame.h"

namespace kvcheck {
namespace {

constexpr VectorExtents kAll = {2, 3, 4};

class WirePlanes : public testing::Test {
 protected:
  WirePlanes() : codes_(2 * 3 * 4 * 5), scale_(4) {
    for (size_t i = 0; i < codes_.size(); ++i) codes_[i] = static_cast<std::byte>(i);
    for (size_t i = 0; i < scale_.size(); ++i) scale_[i] = static_cast<std::byte>(200 + i);
    planes_.Add({"codes", DType::kUInt8, "", 5});
    planes_.Add({"scale", DType::kFloat32, "", 1, PlaneScope::kTensor});
  }

  // The message that holds the planes as `written` describes them.
  WireValue Written(const Planes& written) {
    WireWriter writer;
    writer.StartFrame();
    writer.StartMap();
    const StoredPlane codes = DensePlane(written[0], codes_.data(), kAll.heads, kAll.columns);
    const StoredPlane scale = DensePlane(written[1], scale_.data(), kAll.heads, kAll.columns);
    WritePlanes("k", written, {codes, scale}, kAll, writer);
    writer.EndMap();
    const std::span<const std::byte> frame = writer.FinishFrame();
    bytes_.assign(frame.begin() + 8, frame.end());
    return message_.Read(bytes_).Get("k");
  }
  std::string ErrorOf(const WireValue& list, const Planes& planes) {
    int64_t columns = -1;
    try {
      ReadPlanes(list, "k", planes, "made_up", kAll.rows, kAll.heads, &columns);
    } catch (const WireError& error) {
      return error.what();
    }
    return "";
  }

  std::vector<std::byte> codes_, scale_, bytes_;
  Planes planes_;
  WireMessage message_;
};

TEST_F(WirePlanes, RowsAndParametersComeBack) {
  int64_t columns = -1;
  const std::vector<WireArray> arrays =
      ReadPlanes(Written(planes_), "k", planes_, "made_up", kAll.rows, kAll.heads, &columns);
  EXPECT_EQ(columns, kAll.columns);
  ASSERT_EQ(arrays.size(), 2u);
  EXPECT_TRUE(
      std::equal(codes_.begin(), codes_.end(), arrays[0].bytes.begin(), arrays[0].bytes.end()));
  EXPECT_EQ(arrays[1].rank, 1u);
  EXPECT_TRUE(
      std::equal(scale_.begin(), scale_.end(), arrays[1].bytes.begin(), arrays[1].bytes.end()));
}

TEST_F(WirePlanes, OtherArraysAreRefused) {
  Planes fewer;
  fewer.Add(planes_[0]);
  EXPECT_NE(ErrorOf(Written(planes_), fewer).find("2 arrays, made_up has 1"), std::string::npos);
  Planes wider;
  wider.Add({"codes", DType::kUInt8, "", 6});
  wider.Add(planes_[1]);
  EXPECT_NE(ErrorOf(Written(planes_), wider).find("u8 (2, 3, columns, 6) belongs"),
            std::string::npos);
  Planes two;
  two.Add(planes_[0]);
  two.Add({"scale", DType::kFloat32, "", 2, PlaneScope::kTensor});
  EXPECT_NE(ErrorOf(Written(planes_), two).find("f32 (2) belongs"), std::string::npos);
}

}  // namespace
}  // namespace kvcheck
