#include "tools/measure/codec_speed.h"

#include <algorithm>
#include <ctime>

#include "optimized/formats/codec_implementation.h"
#include "reference/spec/case.h"

namespace kvcheck {
namespace {

constexpr int64_t kTimedElements = int64_t{1} << 18;
constexpr double kShortestTiming = 2e-3;  // seconds

// Seconds of one call, of as many as take long enough for the clock.
template <typename Call>
double SecondsPerCall(int64_t* calls, const Call& call) {
  while (true) {
    const double start = ThreadSeconds();
    for (int64_t i = 0; i < *calls; ++i) call();
    const double seconds = ThreadSeconds() - start;
    if (seconds >= kShortestTiming) return seconds / static_cast<double>(*calls);
    *calls *= 2;
  }
}

}  // namespace

double ThreadSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Profile OptimizedCodecProfile() { return OptimizedCodec::StatedProfile(); }

bool FollowsProfile(const KvFormat& format, const Profile& profile, int64_t head_dim) {
  CodecCase c;
  c.direction = CodecDirection::kRoundTrip;
  c.format = format;
  c.x = DType::kFloat32;
  c.rows = 1;
  c.head_dim = head_dim;
  const TensorMap inputs = {{"x", Tensor(c.x, {{"", 1}, {"", head_dim}})}};
  MemorySink sink;
  return OptimizedCodec(profile).Run(c, inputs, sink) == RunOutcome::kAnswered;
}

CodecSpeed MeasureCodec(const KvFormat& format, DType type, const std::byte* x, int64_t rows,
                        int64_t head_dim, int rounds) {
  rows = std::min(rows, std::max<int64_t>(1, kTimedElements / head_dim));
  optimized::RowCodec codec;
  codec.Start(format, type, head_dim);
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::byte*> planes;
  for (const Plane& plane : PlanesOf(format, head_dim)) {
    planes.push_back(memory.emplace_back(static_cast<size_t>(rows) * plane.Bytes()).data());
  }
  const optimized::StoredRows stored = RowSpanOf<std::byte>(planes, codec.bytes());
  const std::vector<const std::byte*> read(planes.begin(), planes.end());
  const optimized::StoredRowsView view = RowSpanOf<const std::byte>(read, codec.bytes());
  std::vector<float> values(static_cast<size_t>(rows * head_dim));
  const int64_t stride = head_dim * static_cast<int64_t>(SizeInBytes(type));
  int64_t encodes = 1, decodes = 1;
  std::vector<double> encode, decode;
  for (int round = -1; round < rounds; ++round) {
    const double in = SecondsPerCall(&encodes, [&] { codec.Encode(x, stride, rows, stored); });
    const double out = SecondsPerCall(&decodes, [&] { codec.Decode(view, rows, values.data()); });
    if (round < 0) continue;  // warms
    encode.push_back(in);
    decode.push_back(out);
  }
  const double per_element = 1e9 / static_cast<double>(rows * head_dim);
  return {Median(encode) * per_element, Median(decode) * per_element};
}

}  // namespace kvcheck
