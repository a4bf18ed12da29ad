// Recorded traces: what a recording says is what the reader shows, and what is no recording of the
// case is refused, whatever was changed about it.

#include "golden/trace_recording.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>

#include "reference/spec/error.h"

namespace kvcheck {
namespace {

using Status = RecordedAnswer::Status;

constexpr const char* kTrace =
    "cache k=f32 dk=2 hkv=1 hq=2 data=tokens:1; new A rows=2 pad=1,0; append A 1; trim B 1; "
    "attend A; trim A 1; damage s1 flip; drop A";

Tensor Numbers(const std::vector<int64_t>& numbers, int64_t columns) {
  Tensor tensor(DType::kInt64,
                Shape::Unnamed({static_cast<int64_t>(numbers.size()) / columns, columns}));
  if (!numbers.empty()) {
    std::memcpy(tensor.bytes.data(), numbers.data(), numbers.size() * sizeof(int64_t));
  }
  return tensor;
}

Tensor Bytes(const std::string& text, DType dtype = DType::kUInt8) {
  Tensor tensor(dtype, Shape::Unnamed({static_cast<int64_t>(text.size())}));
  if (!text.empty()) std::memcpy(tensor.bytes.data(), text.data(), text.size());
  return tensor;
}

// Two rows of one column, of which the first is padding; then a trim that raised.
TensorMap Recording() {
  TensorMap outputs;
  outputs["answers"] =
      Numbers({1, -1, 0, 1, -1, 1, 0, -1, 0, 1, -1, 0, 2, -1, 0, 0, -1, 0, 1, -1, 0}, 3);
  outputs["messages"] = Bytes("\n\n\n\nValueError: no\n\n\n");
  outputs["slots"] =
      Numbers({0,  -1, -1, -1, -1, 1,  -1, -1, -1, -1, 1,  -1, -1, -1, -1, 1,  -1, -1,
               -1, -1, 1,  -1, -1, -1, -1, 1,  -1, -1, -1, -1, -1, -1, -1, -1, -1},
              5);
  outputs["states"] = Numbers({2, 0, 0, 0, 0, 0, 0, 0,  0,  1, 1, -1,  //
                               2, 1, 1, 1, 1, 1, 1, 64, -1, 0, 1, -1},
                              12);
  outputs["kinds"] = Bytes("- f32 f32\nring:w=4 f32 f32\n");
  outputs["rows"] = Numbers({0, 1, 0, 0, 0, 0, 1, -1}, 2);
  outputs["k"] = Bytes(std::string(16, 'k'));
  outputs["v"] = Bytes(std::string(16, 'v'));
  outputs["visible"] = Bytes(std::string("\0\1", 2), DType::kBool);
  outputs["retained"] = Bytes(std::string("\0\1", 2), DType::kBool);
  outputs["attended"] = Bytes(std::string(32, 'a'));
  return outputs;
}

TraceRecording Read(TensorMap outputs, const std::string& trace = kTrace) {
  return TraceRecording(ParseCacheCase(trace), std::move(outputs), "file");
}

TEST(TraceRecording, ShowsWhatWasRecorded) {
  const TraceRecording recording = Read(Recording());
  ASSERT_EQ(recording.answers().size(), 7u);
  EXPECT_EQ(recording.answers()[2].status, Status::kIdle);
  EXPECT_EQ(recording.answers()[4].status, Status::kRefused);
  EXPECT_TRUE(recording.answers()[1].changed_inputs);
  EXPECT_FALSE(recording.answers()[3].changed_inputs);
  EXPECT_EQ(recording.answers()[4].message, "ValueError: no");
  EXPECT_EQ(recording.answers()[3].attended.size(), 32u);
  EXPECT_EQ(recording.State(6, 0), nullptr);
  EXPECT_EQ(recording.State(1, 1), nullptr);
  const RecordedState& state = *recording.State(1, 0);
  EXPECT_EQ(state.rows, 2);
  EXPECT_EQ(Print(*state.layout), "ring:w=4");
  EXPECT_EQ(state.k_planes[0].size(), 16u);
  EXPECT_EQ(state.k_planes[0][0], std::byte{'k'});
  EXPECT_TRUE(state.k_planes[1].empty());
  EXPECT_EQ(state.visible, (std::vector<uint64_t>{0, 1}));
  EXPECT_EQ(state.offsets, (std::vector<int64_t>{0, 1}));
  EXPECT_TRUE(state.unfed_padding.empty());  // one row cannot tell
  EXPECT_FALSE(recording.State(0, 0)->holds);
  EXPECT_FALSE(recording.State(0, 0)->layout.has_value());
}

// True when it is refused as an unreadable file, false when it is read.
bool Refuses(TensorMap outputs) {
  try {
    Read(std::move(outputs));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnreadableFile) << error.what();
    return true;
  }
  return false;
}

TEST(TraceRecording, WhatIsNoneOfTheCaseIsRefused) {
  const auto refuses = [](const std::function<void(TensorMap*)>& change) {
    TensorMap outputs = Recording();
    change(&outputs);
    return Refuses(std::move(outputs));
  };
  EXPECT_FALSE(refuses([](TensorMap*) {}));
  for (const char* name : RecordingOutputs()) {
    EXPECT_TRUE(refuses([&](TensorMap* o) { o->erase(name); })) << name;
    EXPECT_TRUE(refuses([&](TensorMap* o) { o->at(name).dtype = DType::kInt32; })) << name;
    EXPECT_TRUE(refuses([&](TensorMap* o) { o->at(name).shape.axes.push_back({"", 1}); })) << name;
    EXPECT_TRUE(refuses([&](TensorMap* o) { ++o->at(name).shape.axes[0].extent; })) << name;
    // One row, line or byte less and more, with the bytes to it.
    EXPECT_TRUE(refuses([&](TensorMap* o) {
      Tensor& tensor = o->at(name);
      const size_t row = tensor.bytes.size() / static_cast<size_t>(tensor.shape.axes[0].extent);
      --tensor.shape.axes[0].extent;
      tensor.bytes.resize(tensor.bytes.size() - row);
    })) << name;
    EXPECT_TRUE(refuses([&](TensorMap* o) {
      Tensor& tensor = o->at(name);
      const size_t row = tensor.bytes.size() / static_cast<size_t>(tensor.shape.axes[0].extent);
      ++tensor.shape.axes[0].extent;
      tensor.bytes.resize(tensor.bytes.size() + row, std::byte{'\n'});
    })) << name;
  }
  EXPECT_TRUE(refuses([](TensorMap* o) { (*o)["out"] = Numbers({1}, 1); }));
}

TEST(TraceRecording, NoNumberOfATableIsBelieved) {
  // Whatever a number becomes, the recording is refused or shows what is inside its tensors; the
  // sanitizers watch.
  for (const char* name : {"answers", "slots", "states", "rows"}) {
    const auto count = static_cast<size_t>(Recording().at(name).ElementCount());
    for (size_t i = 0; i < count; ++i) {
      for (const int64_t value : {int64_t{-2}, int64_t{-1}, int64_t{0}, int64_t{1}, int64_t{2},
                                  int64_t{3}, int64_t{4}, int64_t{1} << 31, int64_t{1} << 40,
                                  int64_t{1} << 62, std::numeric_limits<int64_t>::min()}) {
        TensorMap outputs = Recording();
        outputs.at(name).As<int64_t>()[i] = value;
        Refuses(std::move(outputs));
      }
    }
  }
  const auto set = [](const char* name, size_t i, int64_t value) {
    TensorMap outputs = Recording();
    outputs.at(name).As<int64_t>()[i] = value;
    return Refuses(std::move(outputs));
  };
  EXPECT_TRUE(set("answers", 6, 1));   // an empty slot cannot answer
  EXPECT_TRUE(set("answers", 0, 2));   // then there would be no A
  EXPECT_TRUE(set("answers", 18, 2));  // nobody can decline a drop
  EXPECT_TRUE(set("answers", 2, 4));   // neither yes nor no
  EXPECT_TRUE(set("slots", 5, 2));     // there are two states
  EXPECT_TRUE(set("slots", 5, -1));    // A is used
  EXPECT_TRUE(set("slots", 6, 0));     // B is not
  EXPECT_TRUE(set("states", 12, 1));   // one row
  EXPECT_TRUE(set("states", 13, 2));   // two columns
  EXPECT_TRUE(set("states", 14, 2));   // two queries
  EXPECT_TRUE(set("states", 15, 0));   // columns without K and V
  EXPECT_TRUE(set("states", 1, 1));    // likewise
  EXPECT_TRUE(set("states", 22, 2));   // neither yes nor no
  EXPECT_TRUE(set("rows", 0, -2));
}

TEST(TraceRecording, TextsThatDoNotParseAreRefused) {
  for (const char* kinds :
       {"- f32 f32\nring:w=4 f32\n", "- f32 f32\nring f32 f32\n", "- f32 f32\nring:w=4 f32 f99\n",
        "- f32 f32\n- f32 f32 \n", "- f32 f32\n\xff f32 f32\n",
        "- f32 f32\n- f32 affine:4:g32:f32\n", "- f32 f32\n- f64 f32\n", "\n\n", ""}) {
    TensorMap outputs = Recording();
    outputs["kinds"] = Bytes(kinds);
    EXPECT_TRUE(Refuses(std::move(outputs))) << kinds;
  }
}

}  // namespace
}  // namespace kvcheck
