#include "tools/agree/judge_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>
#include <tuple>

#include "reference/attention/attention_source.h"
#include "reference/cache/vector_codec.h"
#include "reference/formats/codec_source.h"
#include "reference/judge/judge.h"
#include "reference/model/step_source.h"
#include "reference/spec/error.h"
#include "reference/spec/implementation.h"

namespace kvcheck {
namespace {

constexpr std::array<std::string_view, kDecoderSteps> kStepNames = {
    "q", "k", "v", "stored k", "stored v", "attention", "mid", "inner", "next", "logits"};

Matrix MatrixOf(const std::vector<float>& values, int64_t rows) {
  Matrix matrix(rows, static_cast<int64_t>(values.size()) / rows);
  std::copy(values.begin(), values.end(), matrix.values.begin());
  return matrix;
}

Tensor TensorOf(const std::vector<float>& values, const Shape& shape) {
  Tensor tensor(DType::kFloat32, shape);
  KVCHECK_CHECK(tensor.bytes.size() == values.size() * sizeof(float), "a tensor of another size");
  std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

std::vector<int64_t> Positions(const SequenceRecord& record) {
  std::vector<int64_t> positions(static_cast<size_t>(record.pending));
  std::iota(positions.begin(), positions.end(), record.first);
  return positions;
}

// One layer of a record, judged by one thread.
class LayerJudge {
 public:
  LayerJudge(const StepQuestion& question, const SequenceRecord& record, int64_t sequence,
             int64_t layer)
      : question_(question),
        config_(question.weights->config),
        record_(record),
        values_(record.layers[static_cast<size_t>(layer)]),
        sequence_(sequence),
        layer_(layer) {}

  void Products() {
    const DecoderWeights& w = *question_.weights;
    const DecoderArithmetic* declared = &question_.arithmetic;
    const int64_t rows = record_.pending;
    ProjectedValues projected =
        Project(w, layer_, MatrixOf(values_.x, rows), Positions(record_), declared);
    const Matrix mid = MatrixOf(values_.mid, rows);
    const Matrix inner = MatrixOf(values_.inner, rows);
    Check(DecoderStep::kQ, std::move(projected.q), values_.q);
    Check(DecoderStep::kK, std::move(projected.k), values_.k);
    Check(DecoderStep::kV, std::move(projected.v), values_.v);
    Check(DecoderStep::kMid,
          AddAttention(w, layer_, MatrixOf(values_.x, rows), MatrixOf(values_.out, rows), declared),
          values_.mid);
    Check(DecoderStep::kInner, Inner(w, layer_, mid, declared), values_.inner);
    Check(DecoderStep::kNext, AddInner(w, layer_, mid, inner, declared), values_.next);
  }

  void LogitsOnly() {
    Check(DecoderStep::kLogits,
          kvcheck::Logits(*question_.weights, MatrixOf(record_.layers.back().next, record_.pending),
                          &question_.arithmetic),
          record_.logits);
  }

  // Bit for bit what the format's encoder makes of the k and v that were computed.
  void Stored() {
    for (const bool is_key : {true, false}) {
      const StoredHistory& stored = is_key ? values_.k_stored : values_.v_stored;
      for (int64_t h = 0; h < config_.kv_heads; ++h) StoredHead(is_key, stored, h);
    }
  }

  void Attention() {
    AttentionCase c;
    const TensorMap inputs = AttentionInputs(0, record_.pending, &c);
    const AttentionSource expected(c, question_.profile, record_.plan, inputs);
    TensorMap answer;
    answer["out"] = Tensor(DType::kFloat32, OutputSpecs(c).at("out").shape);
    HeadMajor(values_.out, 0, record_.pending, answer["out"].As<float>());
    const MemorySink observed(std::move(answer));
    Take(DecoderStep::kAttention, expected, observed, [&](int64_t element, StepFinding* finding) {
      finding->head = element / (record_.pending * config_.head_dim);
      finding->token = record_.first + element / config_.head_dim % record_.pending;
    });
  }

  // Bound of attention's elements of one pending token, (query_heads head_dim).
  std::vector<double> AttentionBound(int64_t row) const {
    AttentionCase c;
    const TensorMap inputs = AttentionInputs(row, 1, &c);
    const AttentionSource source(c, question_.profile, record_.plan, inputs);
    std::vector<double> bound;
    for (int64_t i = 0; i < source.TileCount(); ++i) {
      const ExpectedTile tile = std::move(source.Tiles(i, {}).front());
      for (size_t e = 0; e < tile.bound.size(); ++e) {
        bound.push_back(tile.bound[e] + tile.reference_bound[e]);
      }
    }
    return bound;
  }

  bool explain = true;  // what fails, which costs
  std::vector<StepFinding> findings;
  StepCounts counts;

 private:
  // Queries [row, row + count) of what is pending, over all tokens that they may see.
  TensorMap AttentionInputs(int64_t row, int64_t count, AttentionCase* c) const {
    const int64_t window = config_.windows[static_cast<size_t>(layer_)];
    c->query_heads = config_.query_heads;
    c->kv_heads = config_.kv_heads;
    c->query_len = count;
    // From the first token, so that blocks of keys begin where the path begins them.
    c->kv_len = record_.first + row + count;
    c->k_dim = c->v_dim = config_.head_dim;
    c->k = values_.k_stored.format;
    c->v = values_.v_stored.format;
    c->mask.causal = CausalAlignment::kBottomRight;
    if (window > 0) c->mask.window = window;
    c->scale = config_.scale();
    c->data = {"file", 0, ""};
    TensorMap inputs;
    for (const auto& [name, spec] : InputSpecs(*c)) inputs[name] = Tensor(spec.dtype, spec.shape);
    HeadMajor(values_.q, row, count, inputs.at("q").As<float>());
    for (const bool is_key : {true, false}) {
      const StoredHistory& stored = is_key ? values_.k_stored : values_.v_stored;
      for (size_t i = 0; i < stored.planes.size(); ++i) {
        const size_t bytes = stored.planes[i].Bytes();
        std::byte* to = inputs.at(PlaneTensor(stored.format, is_key ? "k" : "v", stored.planes[i]))
                            .bytes.data();
        for (const std::vector<std::byte>& head : stored.bytes[i]) {
          const size_t size = static_cast<size_t>(c->kv_len) * bytes;
          std::memcpy(to, head.data(), size);
          to += size;
        }
      }
    }
    return inputs;
  }

  // (tokens, query_heads, head_dim) as (query_heads, tokens, head_dim).
  void HeadMajor(const std::vector<float>& from, int64_t row, int64_t count, float* to) const {
    const auto dim = static_cast<size_t>(config_.head_dim);
    for (int64_t h = 0; h < config_.query_heads; ++h) {
      for (int64_t t = row; t < row + count; ++t, to += dim) {
        std::memcpy(to, from.data() + static_cast<size_t>(t * config_.query_heads + h) * dim,
                    dim * sizeof(float));
      }
    }
  }

  void StoredHead(bool is_key, const StoredHistory& stored, int64_t head) {
    CodecCase c;
    c.direction = CodecDirection::kEncode;
    c.format = FormatOfHead(stored.format, head);
    c.rows = record_.pending;
    c.head_dim = config_.head_dim;
    c.data = {"file", 0, ""};
    const std::vector<float>& given = is_key ? values_.k : values_.v;
    const auto dim = static_cast<size_t>(config_.head_dim);
    TensorMap inputs;
    inputs["x"] = Tensor(DType::kFloat32, Shape::Unnamed({c.rows, c.head_dim}));
    for (int64_t t = 0; t < c.rows; ++t) {
      std::memcpy(inputs["x"].As<float>() + static_cast<size_t>(t) * dim,
                  given.data() + static_cast<size_t>(t * config_.kv_heads + head) * dim,
                  dim * sizeof(float));
    }
    TensorMap answer;
    size_t plane = 0;
    const auto specs = OutputSpecs(c);
    for (const Plane& p : stored.planes) {
      const auto& spec = specs.at(std::string(p.name));
      Tensor tensor(spec.dtype, spec.shape);
      const std::vector<std::byte>& all = stored.bytes[plane++][static_cast<size_t>(head)];
      std::memcpy(tensor.bytes.data(), all.data() + static_cast<size_t>(record_.first) * p.Bytes(),
                  tensor.bytes.size());
      answer[std::string(p.name)] = std::move(tensor);
    }
    const auto expected = MakeCodecSource(c, question_.profile, inputs);
    const MemorySink observed(std::move(answer));
    Take(is_key ? DecoderStep::kStoredK : DecoderStep::kStoredV, *expected, observed,
         [&](int64_t element, StepFinding* finding) {
           finding->head = head;
           // Every plane has one row per token; the worst one is the first that fails.
           finding->token = record_.first + element;
         });
  }

  void Check(DecoderStep step, StepValues values, const std::vector<float>& got) {
    const int64_t width = values.value.columns;
    const Shape shape = Shape::Unnamed({values.value.rows, width});
    const StepSource expected({{std::string(Name(step)), std::move(values)}});
    TensorMap answer;
    answer[std::string(Name(step))] = TensorOf(got, shape);
    const MemorySink observed(std::move(answer));
    Take(step, expected, observed, [&](int64_t element, StepFinding* finding) {
      finding->token = record_.first + element / width;
      if (step <= DecoderStep::kV) finding->head = element % width / config_.head_dim;
    });
  }

  // place: fills head and token from the worst element, or of stored bytes from its row.
  template <typename Place>
  void Take(DecoderStep step, const ExpectedSource& expected, const ObservedSource& observed,
            Place place) {
    JudgeOptions options;
    options.explain = false;
    options.every_row_proves = false;
    Verdict verdict = Judge(expected, observed, options);
    for (const OutputVerdict& output : verdict.outputs) {
      counts.elements += output.counts.judged;
      double& share = counts.bound_share[static_cast<size_t>(step)];
      share = std::max(share, output.median_bound_share);
    }
    if (verdict.outcome == Outcome::kPass) return;
    if (verdict.outcome == Outcome::kFail && explain) {
      options.explain = true;
      verdict = Judge(expected, observed, options);
    }
    const auto output =
        std::find_if(verdict.outputs.begin(), verdict.outputs.end(),
                     [&](const OutputVerdict& o) { return o.outcome == verdict.outcome; });
    StepFinding finding;
    finding.outcome = verdict.outcome;
    finding.sequence = sequence_;
    finding.chunk = record_.first;
    finding.layer = step == DecoderStep::kLogits ? config_.layers() : layer_;
    finding.step = step;
    if (output == verdict.outputs.end()) {
      finding.message = verdict.reasons.empty() ? "nothing was judged" : verdict.reasons.front();
    } else if (finding.outcome == Outcome::kFail && output->worst) {
      const bool stored = step == DecoderStep::kStoredK || step == DecoderStep::kStoredV;
      const int64_t row_length = std::max<int64_t>(
          1, expected.Outputs()[static_cast<size_t>(output - verdict.outputs.begin())].row_length);
      place(stored ? output->worst->element / row_length : output->worst->element, &finding);
      finding.message =
          stored ? fmt::format("{} hold {} where the format's encoder gives {}", output->name,
                               output->worst->got_text, output->worst->expected_text)
                 : fmt::format("{} where {} is expected within {:.3g}", output->worst->got,
                               output->worst->expected, output->worst->bound);
      finding.hints = output->hints;
    } else {
      finding.message = output->reasons.empty() ? "nothing was proved" : output->reasons.front();
    }
    findings.push_back(std::move(finding));
  }

  const StepQuestion& question_;
  const DecoderConfig& config_;
  const SequenceRecord& record_;
  const LayerRecord& values_;
  int64_t sequence_;
  int64_t layer_;
};

}  // namespace

std::string_view Name(DecoderStep step) { return kStepNames[static_cast<size_t>(step)]; }

bool ComesBefore(const StepFinding& a, const StepFinding& b) {
  const auto key = [](const StepFinding& f) {
    return std::tuple(f.outcome != Outcome::kFail, f.sequence, f.chunk, f.layer, f.step, f.head);
  };
  return key(a) < key(b);
}

std::string Print(const StepFinding& finding) {
  std::string text = finding.step == DecoderStep::kLogits
                         ? std::string("logits")
                         : fmt::format("layer {}, {}", finding.layer, Name(finding.step));
  if (finding.head >= 0) text += fmt::format(", head {}", finding.head);
  if (finding.token >= 0) text += fmt::format(", token {}", finding.token);
  return text + fmt::format(" of sequence {}: {}", finding.sequence, finding.message);
}

void JudgeSteps(const StepQuestion& question, const SequenceRecord& record, int64_t sequence,
                std::vector<StepFinding>* findings, StepCounts* counts) {
  const int64_t layers = question.weights->config.layers();
  std::vector<LayerJudge> judges;
  for (int64_t layer = 0; layer < layers; ++layer) {
    judges.emplace_back(question, record, sequence, layer);
    // The first failure is shown; those after it are counted.
    judges.back().explain = findings->empty();
  }
  // Three jobs a layer would be finer, and attention is most of the time.
  std::atomic<int64_t> next{0};
  std::mutex mutex;
  std::exception_ptr error;
  const auto work = [&] {
    for (int64_t layer = next++; layer < layers; layer = next++) {
      try {
        LayerJudge& judge = judges[static_cast<size_t>(layer)];
        judge.Products();
        judge.Stored();
        judge.Attention();
        if (layer + 1 == layers) judge.LogitsOnly();
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> others;
    for (int i = 1; i < question.threads; ++i) others.emplace_back(work);
    work();
  }
  if (error) std::rethrow_exception(error);
  for (LayerJudge& judge : judges) {
    for (StepFinding& finding : judge.findings) findings->push_back(std::move(finding));
    counts->elements += judge.counts.elements;
    for (size_t i = 0; i < kDecoderSteps; ++i) {
      counts->bound_share[i] = std::max(counts->bound_share[i], judge.counts.bound_share[i]);
    }
  }
}

std::vector<LayerRows> StoredRowsOf(const StepQuestion& question, const SequenceRecord& record) {
  const DecoderConfig& c = question.weights->config;
  std::vector<LayerRows> rows;
  std::vector<std::byte> vector;
  for (const LayerRecord& layer : record.layers) {
    LayerRows of_layer;
    for (const bool is_key : {true, false}) {
      const StoredHistory& stored = is_key ? layer.k_stored : layer.v_stored;
      VectorCodec codec(stored.format, DType::kFloat32, c.head_dim, question.profile);
      Matrix values(record.pending, c.kv_width());
      for (int64_t t = 0; t < record.pending; ++t) {
        const auto token = static_cast<size_t>(record.first + t);
        for (int64_t h = 0; h < c.kv_heads; ++h) {
          vector.clear();
          for (size_t i = 0; i < stored.planes.size(); ++i) {
            const size_t bytes = stored.planes[i].Bytes();
            const std::byte* from = stored.bytes[i][static_cast<size_t>(h)].data() + token * bytes;
            vector.insert(vector.end(), from, from + bytes);
          }
          codec.Decode(vector.data(), values.Row(t) + h * c.head_dim, h);
        }
      }
      (is_key ? of_layer.k : of_layer.v) = std::move(values);
    }
    rows.push_back(std::move(of_layer));
  }
  return rows;
}

StepBounds BoundsOf(const StepQuestion& question, const SequenceRecord& record, int64_t row) {
  const DecoderWeights& w = *question.weights;
  const DecoderArithmetic* declared = &question.arithmetic;
  const auto row_of = [&](const std::vector<float>& values) {
    const Matrix all = MatrixOf(values, record.pending);
    Matrix one(1, all.columns);
    std::copy_n(all.Row(row), all.columns, one.values.begin());
    return one;
  };
  const auto both = [](const StepValues& step) {
    std::vector<double> bound = step.bound.values;
    for (size_t i = 0; i < bound.size(); ++i) bound[i] += step.own.values[i];
    return bound;
  };
  const std::array<int64_t, 1> position = {record.first + row};
  StepBounds bounds;
  for (int64_t l = 0; l < w.config.layers(); ++l) {
    const LayerRecord& layer = record.layers[static_cast<size_t>(l)];
    const Matrix x = row_of(layer.x);
    const Matrix mid = row_of(layer.mid);
    StepBounds::Layer b;
    b.q = both(Project(w, l, x, position, declared).q);
    b.out = LayerJudge(question, record, 0, l).AttentionBound(row);
    b.mid = both(AddAttention(w, l, x, row_of(layer.out), declared));
    b.inner = both(Inner(w, l, mid, declared));
    b.next = both(AddInner(w, l, mid, row_of(layer.inner), declared));
    bounds.layers.push_back(std::move(b));
  }
  bounds.logits = both(Logits(w, row_of(record.layers.back().next), declared));
  return bounds;
}

}  // namespace kvcheck
