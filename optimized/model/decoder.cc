#include "optimized/model/decoder.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>

#include "optimized/formats/row_codec.h"
#include "optimized/model/product.h"

namespace kvcheck::optimized {
namespace {

std::vector<float> Floats(const Tensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.ElementCount()));
  RowCodec codec;
  const auto bytes = static_cast<int64_t>(tensor.bytes.size());
  const int64_t rows = tensor.shape.RowCount();
  codec.Start(PlainFormat{tensor.dtype}, tensor.dtype, tensor.shape.RowLength());
  StoredRowsView view;
  view.codes = tensor.bytes.data();
  view.code_stride = rows == 0 ? 0 : bytes / rows;
  codec.Decode(view, rows, values.data());
  return values;
}

// (out, in) as [in][out].
std::vector<float> Transposed(const Tensor& tensor) {
  const std::vector<float> rows = Floats(tensor);
  const auto in = static_cast<size_t>(tensor.shape.RowLength());
  const auto out = static_cast<size_t>(tensor.shape.RowCount());
  std::vector<float> result(rows.size());
  for (size_t o = 0; o < out; ++o) {
    for (size_t i = 0; i < in; ++i) result[i * out + o] = rows[o * in + i];
  }
  return result;
}

void Norm(const std::vector<float>& x, const std::vector<float>& weight, double eps,
          std::vector<float>* y) {
  const size_t width = weight.size();
  y->resize(x.size());
  for (size_t row = 0; row < x.size(); row += width) {
    double sum = 0;
    for (size_t i = row; i < row + width; ++i) sum += static_cast<double>(x[i]) * x[i];
    const auto scale = static_cast<float>(1 / std::sqrt(sum / static_cast<double>(width) + eps));
    for (size_t i = 0; i < width; ++i) (*y)[row + i] = x[row + i] * scale * weight[i];
  }
}

void Add(const std::vector<float>& x, std::vector<float>* y) {
  for (size_t i = 0; i < x.size(); ++i) (*y)[i] = x[i] + (*y)[i];
}

}  // namespace

struct Decoder::Layer {
  std::vector<float> input_norm, post_norm;
  std::vector<float> q, k, v, o, gate, up, down;  // [in][out]
};

struct Decoder::Buffers {
  std::vector<float> x, normed, q, k, v, out, mid, gate, up, next;
  // Attention's own order, (rows, heads, columns, head_dim).
  std::vector<float> queries, answers;
};

Decoder::Decoder(const DecoderConfig& config, const TensorMap& weights, int threads)
    : config_(config), pool_(threads), buffers_(std::make_unique<Buffers>()) {
  embedding_ = Floats(Get(weights, kEmbedding));
  head_ = Transposed(Get(weights, config.tied_embeddings ? kEmbedding : kHead));
  final_norm_ = Floats(Get(weights, kFinalNorm));
  for (int64_t layer = 0; layer < config.layers(); ++layer) {
    const auto get = [&](const char* name) -> const Tensor& {
      return Get(weights, LayerTensor(layer, name));
    };
    layers_.push_back({Floats(get(kInputNorm)), Floats(get(kPostNorm)), Transposed(get(kQProj)),
                       Transposed(get(kKProj)), Transposed(get(kVProj)), Transposed(get(kOProj)),
                       Transposed(get(kGateProj)), Transposed(get(kUpProj)),
                       Transposed(get(kDownProj))});
  }
}

Decoder::~Decoder() = default;

void Decoder::Multiply(const std::vector<float>& x, const std::vector<float>& w, int64_t rows,
                       int64_t in, int64_t out, std::vector<float>* y) {
  y->resize(static_cast<size_t>(rows * out));
  struct Call {
    ProductArguments arguments;
    int64_t piece;
    std::atomic<int64_t> next{0};
  };
  // Pieces of whole vectors on every instruction set.
  constexpr int64_t kLeast = 32;
  const int64_t pieces = pool_.workers() == 1 ? 1 : 2 * pool_.workers();
  const int64_t piece = std::max(kLeast, (out / pieces + kLeast - 1) / kLeast * kLeast);
  Call call{{x.data(), rows, in, w.data(), out, y->data()}, piece, {}};
  pool_.Run(
      [](void* context, int) {
        auto& c = *static_cast<Call*>(context);
        for (int64_t first = c.next.fetch_add(c.piece); first < c.arguments.out;
             first = c.next.fetch_add(c.piece)) {
          Product(c.arguments, first, std::min(c.piece, c.arguments.out - first));
        }
      },
      &call);
}

void Decoder::Turn(int64_t position, float* cosine, float* sine) const {
  const int64_t half = config_.head_dim / 2;
  for (int64_t i = 0; i < half; ++i) {
    const double exponent = -static_cast<double>(2 * i) / static_cast<double>(config_.head_dim);
    const double angle = static_cast<double>(position) * std::pow(config_.rope_theta, exponent);
    cosine[i] = static_cast<float>(std::cos(angle));
    sine[i] = static_cast<float>(std::sin(angle));
  }
}

void Decoder::Rotate(int64_t heads, std::span<const int64_t> positions, float* x) {
  const auto half = static_cast<size_t>(config_.head_dim / 2);
  std::vector<float> cosine(half), sine(half);
  for (const int64_t position : positions) {
    Turn(std::max<int64_t>(0, position), cosine.data(), sine.data());
    for (int64_t h = 0; h < heads; ++h, x += 2 * half) {
      for (size_t i = 0; i < half; ++i) {
        const float low = x[i];
        const float high = x[half + i];
        x[i] = low * cosine[i] - high * sine[i];
        x[half + i] = high * cosine[i] + low * sine[i];
      }
    }
  }
}

OpResult Decoder::Attend(int64_t layer, const DecoderColumns& columns, const Plan** plan) {
  Buffers& b = *buffers_;
  const auto dim = static_cast<size_t>(config_.head_dim);
  const int64_t kv_width = config_.kv_width();
  for (size_t i = 0; i < columns.positions.size(); ++i) {
    if (columns.positions[i] != kPadding) continue;
    const auto begin = static_cast<ptrdiff_t>(i) * kv_width;
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    std::fill_n(b.k.begin() + begin, kv_width, kNan);
    std::fill_n(b.v.begin() + begin, kv_width, kNan);
  }
  constexpr auto kFloat = static_cast<int64_t>(sizeof(float));
  TokenColumns appended;
  appended.rows = columns.rows;
  appended.kv_heads = config_.kv_heads;
  appended.columns = columns.columns;
  appended.k_dim = appended.v_dim = config_.head_dim;
  appended.k = reinterpret_cast<const std::byte*>(b.k.data());
  appended.v = reinterpret_cast<const std::byte*>(b.v.data());
  appended.k_strides = appended.v_strides = {columns.columns * kv_width * kFloat,
                                             config_.head_dim * kFloat, kv_width * kFloat};
  Cache* cache = columns.caches[static_cast<size_t>(layer)];
  if (const OpResult result = cache->Append(appended); !result.ok()) return result;

  const auto heads = static_cast<size_t>(config_.query_heads);
  const auto count = static_cast<size_t>(columns.columns);
  b.queries.resize(b.q.size());
  b.answers.resize(b.q.size());
  b.out.resize(b.q.size());
  // From (row, column, head) to (row, head, column) and back.
  const auto each = [&](auto copy) {
    for (size_t row = 0; row < static_cast<size_t>(columns.rows); ++row) {
      for (size_t c = 0; c < count; ++c) {
        for (size_t h = 0; h < heads; ++h) {
          copy(((row * count + c) * heads + h) * dim, ((row * heads + h) * count + c) * dim);
        }
      }
    }
  };
  each([&](size_t token, size_t query) {
    std::memcpy(&b.queries[query], &b.q[token], dim * sizeof(float));
  });
  AttendRequest request;
  request.rows = columns.rows;
  request.query_heads = config_.query_heads;
  request.queries = columns.columns;
  request.q = reinterpret_cast<const std::byte*>(b.queries.data());
  request.scale = config_.scale();
  const int64_t window = config_.windows[static_cast<size_t>(layer)];
  if (window > 0 && columns.ask_windows) request.window = window;
  const OpResult result = cache->Attend(request, reinterpret_cast<std::byte*>(b.answers.data()));
  if (!result.ok()) return result;
  *plan = result.plan;
  each([&](size_t token, size_t query) {
    std::memcpy(&b.out[token], &b.answers[query], dim * sizeof(float));
  });
  return {};
}

OpResult Decoder::Forward(const DecoderColumns& columns, DecoderWatcher* watcher,
                          std::vector<float>* logits) {
  Buffers& b = *buffers_;
  const int64_t tokens = columns.rows * columns.columns;
  const int64_t hidden = config_.hidden;
  b.x.resize(static_cast<size_t>(tokens * hidden));
  for (int64_t t = 0; t < tokens; ++t) {
    std::memcpy(&b.x[static_cast<size_t>(t * hidden)],
                &embedding_[static_cast<size_t>(columns.tokens[static_cast<size_t>(t)] * hidden)],
                static_cast<size_t>(hidden) * sizeof(float));
  }
  for (int64_t layer = 0; layer < config_.layers(); ++layer) {
    const Layer& l = layers_[static_cast<size_t>(layer)];
    Norm(b.x, l.input_norm, config_.rms_norm_eps, &b.normed);
    Multiply(b.normed, l.q, tokens, hidden, config_.query_width(), &b.q);
    Multiply(b.normed, l.k, tokens, hidden, config_.kv_width(), &b.k);
    Multiply(b.normed, l.v, tokens, hidden, config_.kv_width(), &b.v);
    Rotate(config_.query_heads, columns.positions, b.q.data());
    Rotate(config_.kv_heads, columns.positions, b.k.data());
    const Plan* plan = nullptr;
    if (const OpResult result = Attend(layer, columns, &plan); !result.ok()) return result;
    Multiply(b.out, l.o, tokens, config_.query_width(), hidden, &b.mid);
    Add(b.x, &b.mid);
    Norm(b.mid, l.post_norm, config_.rms_norm_eps, &b.normed);
    Multiply(b.normed, l.gate, tokens, hidden, config_.intermediate, &b.gate);
    Multiply(b.normed, l.up, tokens, hidden, config_.intermediate, &b.up);
    for (size_t i = 0; i < b.gate.size(); ++i) {
      const double a = b.gate[i];
      b.gate[i] = static_cast<float>(a / (1 + std::exp(-a))) * b.up[i];
    }
    Multiply(b.gate, l.down, tokens, config_.intermediate, hidden, &b.next);
    Add(b.mid, &b.next);
    if (watcher != nullptr) {
      watcher->Layer({layer, b.x.data(), b.q.data(), b.k.data(), b.v.data(), b.out.data(),
                      b.mid.data(), b.gate.data(), b.next.data(),
                      columns.caches[static_cast<size_t>(layer)], plan});
    }
    std::swap(b.x, b.next);
  }
  Norm(b.x, final_norm_, config_.rms_norm_eps, &b.normed);
  Multiply(b.normed, head_, tokens, hidden, config_.vocabulary, logits);
  return {};
}

}  // namespace kvcheck::optimized
