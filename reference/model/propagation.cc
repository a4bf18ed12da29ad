#include "reference/model/propagation.h"

#include <cmath>
#include <span>

#include "reference/attention/evaluate.h"
#include "reference/numerics/exp.h"

namespace kvcheck {
namespace {

using Vector = std::vector<double>;

std::span<const double> RowOf(const Matrix& matrix, int64_t row) {
  return {matrix.Row(row), static_cast<size_t>(matrix.columns)};
}

double Moved(const Vector& gradient, const Vector& bound) {
  double sum = 0;
  for (size_t i = 0; i < gradient.size(); ++i) sum += std::fabs(gradient[i]) * bound[i];
  return sum;
}

void Add(const Vector& more, Vector* to) {
  for (size_t i = 0; i < to->size(); ++i) (*to)[i] += more[i];
}

// Through y = x w / rms(x): dx = (w g - x (w g . x) / (n rms^2)) / rms.
Vector ThroughNorm(std::span<const double> x, const Vector& weight, double eps, const Vector& g) {
  double squares = 0;
  double along = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    squares += x[i] * x[i];
    along += g[i] * weight[i] * x[i];
  }
  const auto n = static_cast<double>(x.size());
  const double mean = squares / n + eps;
  const double scale = 1 / std::sqrt(mean);
  Vector result(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    result[i] = scale * (g[i] * weight[i] - x[i] * along / (n * mean));
  }
  return result;
}

// Of W n, n = RMSNorm(x), for a row of x.
Matrix NormRow(std::span<const double> x, const Vector& weight, double eps) {
  double squares = 0;
  for (const double value : x) squares += value * value;
  const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + eps);
  Matrix n(1, static_cast<int64_t>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) n.values[i] = x[i] * scale * weight[i];
  return n;
}

// Through silu(Wgate n) * (Wup n) to mid.
Vector ThroughInner(const LayerWeights& l, double eps, std::span<const double> mid,
                    const Vector& g) {
  const Matrix n = NormRow(mid, l.post_norm, eps);
  const Matrix gate = Multiply(n, l.gate);
  const Matrix up = Multiply(n, l.up);
  Vector of_gate(g.size());
  Vector of_up(g.size());
  for (size_t i = 0; i < g.size(); ++i) {
    const double a = gate.values[i];
    const double sigmoid = 1 / (1 + ExpDouble(-a));
    of_gate[i] = g[i] * up.values[i] * sigmoid * (1 + a * (1 - sigmoid));
    of_up[i] = g[i] * a * sigmoid;
  }
  Vector of_n = MultiplyTransposed(of_gate, l.gate);
  Add(MultiplyTransposed(of_up, l.up), &of_n);
  return ThroughNorm(mid, l.post_norm, eps, of_n);
}

// Through attention to q: ds_j = p_j (g . v_j - g . o), dq = scale sum_j ds_j k_j.
Vector ThroughAttention(const DecoderConfig& c, const DecoderSequence& sequence, int64_t layer,
                        int64_t position, std::span<const double> q, const Vector& g) {
  const int64_t first = sequence.FirstKey(layer, position);
  std::vector<int32_t> keys;
  for (int64_t key = first; key <= position; ++key) keys.push_back(static_cast<int32_t>(key));
  const auto dim = static_cast<size_t>(c.head_dim);
  Vector result(q.size());
  for (int64_t h = 0; h < c.query_heads; ++h) {
    const auto at = static_cast<size_t>(h) * dim;
    RowQuestion question;
    question.head = &sequence.Head(layer, h / (c.query_heads / c.kv_heads)).data();
    question.q = q.subspan(at, dim);
    question.keys = keys;
    question.scale = c.scale();
    const RowAnswer<double> answer = Evaluate<double>(question);
    double of_out = 0;
    for (size_t i = 0; i < dim; ++i) of_out += g[at + i] * answer.o[i];
    for (size_t j = 0; j < keys.size(); ++j) {
      const size_t row = static_cast<size_t>(keys[j]) * dim;
      double of_v = 0;
      for (size_t i = 0; i < dim; ++i) of_v += g[at + i] * question.head->v.hi[row + i];
      const double score = c.scale() * answer.p[j] * (of_v - of_out);
      for (size_t i = 0; i < dim; ++i) result[at + i] += score * question.head->k.hi[row + i];
    }
  }
  return result;
}

// Back through RoPE: the rotation by the opposite angle.
Vector ThroughRope(const DecoderConfig& c, int64_t position, const Vector& g) {
  const RopeAngles angles(c, position);
  const int64_t half = c.head_dim / 2;
  Vector result(g.size());
  for (size_t i = 0; i < g.size(); ++i) {
    const auto channel = static_cast<int64_t>(i) % c.head_dim;
    const auto pair = static_cast<size_t>(channel % half);
    const size_t other =
        channel < half ? i + static_cast<size_t>(half) : i - static_cast<size_t>(half);
    const double sine = channel < half ? angles.sine[pair] : -angles.sine[pair];
    result[i] = g[i] * angles.cosine[pair] + g[other] * sine;
  }
  return result;
}

}  // namespace

double PropagatedError(const DecoderWeights& w, const DecoderSequence& sequence, int64_t row,
                       int64_t a, int64_t b, const StepBounds& bounds) {
  const DecoderConfig& c = w.config;
  const int64_t position = sequence.length() - sequence.final_x().rows + row;
  double moved = bounds.logits[static_cast<size_t>(a)] + bounds.logits[static_cast<size_t>(b)];
  Vector of_logits(static_cast<size_t>(c.vocabulary));
  of_logits[static_cast<size_t>(a)] += 1;
  of_logits[static_cast<size_t>(b)] -= 1;
  Vector of_x = ThroughNorm(RowOf(sequence.final_x(), row), w.final_norm, c.rms_norm_eps,
                            MultiplyTransposed(of_logits, w.head));
  for (int64_t layer = c.layers() - 1; layer >= 0; --layer) {
    const LayerWeights& l = w.layers[static_cast<size_t>(layer)];
    const LayerTrace& trace = sequence.trace()[static_cast<size_t>(layer)];
    const StepBounds::Layer& bound = bounds.layers[static_cast<size_t>(layer)];
    moved += Moved(of_x, bound.next);
    const Vector of_inner = MultiplyTransposed(of_x, l.down);
    moved += Moved(of_inner, bound.inner);
    // mid reaches the next layer by itself and through the inner product.
    Add(ThroughInner(l, c.rms_norm_eps, RowOf(trace.mid, row), of_inner), &of_x);
    moved += Moved(of_x, bound.mid);
    const Vector of_out = MultiplyTransposed(of_x, l.o);
    moved += Moved(of_out, bound.out);
    const Vector of_q = ThroughAttention(c, sequence, layer, position, RowOf(trace.q, row), of_out);
    moved += Moved(of_q, bound.q);
    const Vector of_n = MultiplyTransposed(ThroughRope(c, position, of_q), l.q);
    Add(ThroughNorm(RowOf(trace.x, row), l.input_norm, c.rms_norm_eps, of_n), &of_x);
  }
  return moved;
}

}  // namespace kvcheck
