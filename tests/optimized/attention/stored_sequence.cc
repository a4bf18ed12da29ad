#include "tests/optimized/attention/stored_sequence.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

#include "optimized/formats/row_codec.h"

namespace kvcheck {
namespace {

using optimized::ColumnRun;

// Numbers of a token's vector: of the token and head alone.
void FillVector(uint64_t seed, int64_t token, int64_t head, bool is_key, std::vector<float>* x) {
  std::mt19937 random(static_cast<uint32_t>(seed * 7919 + static_cast<uint64_t>(token) * 131 +
                                            static_cast<uint64_t>(head) * 17 + (is_key ? 1 : 0)));
  for (float& value : *x) {
    value = std::ldexp(static_cast<float>(static_cast<int32_t>(random())), -30);
  }
}

std::vector<float> Numbers(uint64_t seed, int64_t count, float size) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) {
    value = size * std::ldexp(static_cast<float>(static_cast<int32_t>(random())), -31);
  }
  return values;
}

// The column of each token, and how many columns there are.
std::vector<int64_t> ColumnsOf(Place place, int64_t tokens, int64_t* columns) {
  std::vector<int64_t> of(static_cast<size_t>(tokens));
  std::iota(of.begin(), of.end(), 0);
  *columns = tokens;
  if (place == Place::kPadded) {
    *columns = tokens + 12;
    for (int64_t& column : of) column += 7;
  }
  if (place == Place::kRing) {
    for (int64_t& column : of) column = (column + tokens - tokens / 2) % tokens;
  }
  if (place == Place::kScattered) {
    *columns = tokens + 5;
    std::vector<int64_t> all(static_cast<size_t>(*columns));
    std::iota(all.begin(), all.end(), 0);
    std::mt19937 random(3);
    for (size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[random() % i]);
    std::copy_n(all.begin(), of.size(), of.begin());
  }
  if (place == Place::kPermuted) {
    const auto block = static_cast<size_t>(optimized::kBlockTokens);
    for (size_t first = 0; first < of.size(); first += block) {
      const size_t end = std::min(first + block, of.size());
      if (end > first + 3) std::reverse(&of[first + 1], &of[first] + (end - first - 1));
    }
  }
  return of;
}

}  // namespace

GuardedBytes::GuardedBytes(int64_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t used = (static_cast<size_t>(bytes) + page - 1) / page * page;
  mapped_ = used + page;
  void* at = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED || mprotect(static_cast<std::byte*>(at) + used, page, PROT_NONE) != 0) {
    std::abort();
  }
  map_ = static_cast<std::byte*>(at);
  data_ = map_ + used - bytes;
  std::memset(map_, 0xff, used);
}

GuardedBytes::~GuardedBytes() {
  if (map_ != nullptr) munmap(map_, mapped_);
}

GuardedBytes& GuardedBytes::operator=(GuardedBytes&& other) noexcept {
  std::swap(map_, other.map_);
  std::swap(mapped_, other.mapped_);
  std::swap(data_, other.data_);
  return *this;
}

StoredOperand::StoredOperand(const Sequence& sequence, bool is_key, Place place) {
  const optimized::AttentionShape& shape = sequence.shape;
  const KvFormat& format = is_key ? shape.k : shape.v;
  const int64_t dim = is_key ? shape.k_dim : shape.v_dim;
  const optimized::RowBytes bytes = optimized::RowBytesOf(format, dim);
  int64_t count = 0;
  const std::vector<int64_t> column = ColumnsOf(place, sequence.tokens, &count);
  const int64_t vectors = count * shape.kv_heads;
  codes_ = GuardedBytes(vectors * bytes.codes);
  scales_ = GuardedBytes(vectors * bytes.scales);
  biases_ = GuardedBytes(vectors * bytes.scales);
  const bool by_token =
      place != Place::kHeadMajor && place != Place::kPadded && place != Place::kPermuted;
  const int64_t token_step = by_token ? shape.kv_heads : 1;
  const int64_t head_step = by_token ? 1 : count;
  heads_ = {codes_.data(),
            bytes.scales == 0 ? nullptr : scales_.data(),
            bytes.scales == 0 ? nullptr : biases_.data(),
            token_step * bytes.codes,
            head_step * bytes.codes,
            token_step * bytes.scales,
            head_step * bytes.scales};
  optimized::RowCodec codec;
  codec.Start(format, DType::kFloat32, dim);
  std::vector<float> x(static_cast<size_t>(dim));
  for (int64_t token = 0; token < sequence.tokens; ++token) {
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      FillVector(sequence.seed, token, head, is_key, &x);
      const int64_t at = column[static_cast<size_t>(token)] * token_step + head * head_step;
      codec.Encode(reinterpret_cast<const std::byte*>(x.data()), 0, 1,
                   {codes_.data() + at * bytes.codes, scales_.data() + at * bytes.scales,
                    biases_.data() + at * bytes.scales, 0, 0});
    }
  }
  for (int64_t token = 0; token < sequence.tokens; ++token) {
    const int64_t at = column[static_cast<size_t>(token)];
    if (!columns_.empty() && columns_.back().column + columns_.back().count == at) {
      ++columns_.back().count;
    } else {
      columns_.push_back({token, at, 1});
    }
  }
}

Asked::Asked(const Sequence& sequence, Place place)
    : sequence_(sequence), k_(sequence, true, place), v_(sequence, false, place) {
  const optimized::AttentionShape& shape = sequence.shape;
  const int64_t heads = shape.query_heads;
  const int64_t tokens = sequence.tokens;
  const int64_t queries = sequence.queries;
  q_ = Numbers(sequence.seed + 1, heads * queries * shape.k_dim, 2);
  if (sequence.bias) bias_ = Numbers(sequence.seed + 2, queries * tokens, 3);
  if (sequence.alibi) slopes_ = Numbers(sequence.seed + 3, heads, 0.25f);
  if (sequence.sinks) sinks_ = Numbers(sequence.seed + 4, heads, 4);
  out_.assign(static_cast<size_t>(heads * queries * shape.v_dim), 0);
  lse_.assign(static_cast<size_t>(heads * queries), 0);
  const bool bits = sequence.holes > 0 || sequence.bits_for_all;
  const int64_t words = (tokens + 63) / 64;
  if (bits) bits_.assign(static_cast<size_t>(queries * words), 0);
  std::mt19937 random(static_cast<uint32_t>(sequence.seed + 5));
  for (int64_t l = 0; l < queries; ++l) {
    optimized::VisibleKeys keys;
    const int64_t position = tokens - queries + l;
    keys.end = sequence.causal ? position + 1 : tokens;
    if (sequence.window > 0) keys.from = position + 1 - sequence.window;
    keys.keep = sequence.keep;
    if (bits) {
      uint64_t* of = &bits_[static_cast<size_t>(l * words)];
      for (int64_t p = 0; p < tokens; ++p) {
        const bool hidden = std::ldexp(static_cast<double>(random()), -32) < sequence.holes;
        const bool in_range = p < keys.end && (p < keys.keep || p >= keys.from);
        if (!hidden && in_range) of[p / 64] |= uint64_t{1} << (p % 64);
      }
      keys = {0, 0, tokens, of, false};
      // What is hidden has a bias that would spoil everything.
      for (int64_t p = 0; sequence.bias && p < tokens; ++p) {
        if ((of[p / 64] >> (p % 64) & 1) == 0) {
          bias_[static_cast<size_t>(l * tokens + p)] = std::numeric_limits<float>::quiet_NaN();
        }
      }
    }
    visible_.push_back(keys);
  }
}

optimized::SequenceQueries Asked::Queries(int64_t first, int64_t count) {
  const optimized::AttentionShape& shape = sequence_.shape;
  const int64_t queries = sequence_.queries;
  optimized::SequenceQueries to;
  to.k = k_.heads();
  to.v = v_.heads();
  to.columns = k_.columns();
  to.queries = count;
  to.q = q_.data() + first * shape.k_dim;
  to.q_stride = shape.k_dim;
  to.q_head_stride = queries * shape.k_dim;
  to.visible = visible_.data() + first;
  if (sequence_.bias) to.bias = bias_.data() + first * sequence_.tokens;
  to.bias_stride = sequence_.tokens;
  if (sequence_.alibi) to.alibi_slopes = slopes_.data();
  to.first_position = sequence_.tokens - queries + first;
  if (sequence_.sinks) to.sinks = sinks_.data();
  to.out = out_.data() + first * shape.v_dim;
  to.out_stride = shape.v_dim;
  to.out_head_stride = queries * shape.v_dim;
  to.lse = lse_.data() + first;
  to.lse_head_stride = queries;
  return to;
}

std::vector<uint32_t> Asked::Answers() const {
  std::vector<uint32_t> answers;
  for (const float value : out_) answers.push_back(std::bit_cast<uint32_t>(value));
  for (const float value : lse_) answers.push_back(std::bit_cast<uint32_t>(value));
  return answers;
}

std::string_view Name(Place place) {
  switch (place) {
    case Place::kHeadMajor:
      return "head-major";
    case Place::kTokenMajor:
      return "token-major";
    case Place::kPadded:
      return "padded";
    case Place::kRing:
      return "ring";
    case Place::kScattered:
      return "scattered";
    case Place::kPermuted:
      return "permuted";
  }
  return "";
}

std::string Describe(const Sequence& s) {
  return fmt::format(
      "k={} v={} hq={} hkv={} dk={} dv={} tokens={} queries={} causal={} window={} keep={} "
      "holes={} "
      "bits={} bias={} alibi={} sinks={} portable={} seed={}",
      Print(s.shape.k), Print(s.shape.v), s.shape.query_heads, s.shape.kv_heads, s.shape.k_dim,
      s.shape.v_dim, s.tokens, s.queries, s.causal, s.window, s.keep, s.holes, s.bits_for_all,
      s.bias, s.alibi, s.sinks, s.shape.portable, s.seed);
}

std::vector<uint32_t> Solve(const Sequence& sequence, Place place, int threads) {
  Asked asked(sequence, place);
  optimized::Attention attention(threads);
  const optimized::SequenceQueries queries = asked.Queries();
  attention.Run(sequence.shape, {&queries, 1});
  return asked.Answers();
}

}  // namespace kvcheck
