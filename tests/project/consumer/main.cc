// Judges an attention kernel of its own, right and off by one: prints a PASS and a FAIL.

#include <kvcheck/kvcheck.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

constexpr int64_t kHeads = 2, kTokens = 16, kDim = 32;

// Causal attention of one head after the other, in float; query l sees the keys before l + visible.
std::vector<float> Attend(const std::vector<float>& q, const std::vector<float>& k,
                          const std::vector<float>& v, int64_t visible) {
  std::vector<float> out(q.size());
  for (int64_t row = 0; row < kHeads * kTokens; ++row) {
    const int64_t head = row / kTokens * kTokens, seen = row % kTokens + visible;
    std::vector<float> p(static_cast<size_t>(seen));
    float most = -INFINITY, sum = 0;
    for (int64_t t = 0; t < seen; ++t) {
      float dot = 0;
      for (int64_t d = 0; d < kDim; ++d) dot += q[row * kDim + d] * k[(head + t) * kDim + d];
      p[t] = dot / std::sqrt(float{kDim});
      most = std::fmax(most, p[t]);
    }
    for (float& x : p) sum += x = std::exp(x - most);
    for (int64_t i = 0; i < seen * kDim; ++i) {
      out[row * kDim + i % kDim] += p[i / kDim] / sum * v[head * kDim + i];
    }
  }
  return out;
}

}  // namespace

int main() {
  std::vector<float> tensors[3];
  for (int i = 0; i < 3; ++i) {
    for (int64_t j = 0; j < kHeads * kTokens * kDim; ++j) {
      tensors[i].push_back(std::sin(0.37f * float(j) + float(i)));
    }
  }
  const auto array = [](const std::vector<float>& x) {
    return kvcheck::Array{kvcheck::DType::kFloat32, {1, kHeads, kTokens, kDim}, x.data()};
  };
  const auto judge = [&](const std::vector<float>& out) {
    kvcheck::AttentionCall call = {array(tensors[0]), array(tensors[1]), array(tensors[2])};
    call.out = array(out);
    call.mask = "causal_bottom_right";
    const kvcheck::Verdict verdict = kvcheck::JudgeAttention(call);
    std::fputs(kvcheck::TextOf(verdict).c_str(), stdout);
    return kvcheck::ExitCodeOf(verdict);
  };
  const int right = judge(Attend(tensors[0], tensors[1], tensors[2], 1));
  const int wrong = judge(Attend(tensors[0], tensors[1], tensors[2], 0));
  return right == 0 && wrong == 1 ? 0 : 1;
}
