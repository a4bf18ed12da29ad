#include "reference/model/propagation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "reference/attention/definition.h"
#include "tests/reference/model/small_model.h"

namespace kvcheck {
namespace {

// What every step of the last token gives, changed.
using Perturbations = StepBounds;

class Propagation : public testing::Test {
 protected:
  Propagation() { sequence_.Forward(small_model::Tokens(9)); }

  Perturbations Zeros() const {
    Perturbations p;
    const auto zeros = [](int64_t n) { return std::vector<double>(static_cast<size_t>(n)); };
    for (int64_t l = 0; l < c_.layers(); ++l) {
      p.layers.push_back({zeros(c_.query_width()), zeros(c_.query_width()), zeros(c_.hidden),
                          zeros(c_.intermediate), zeros(c_.hidden)});
    }
    p.logits = zeros(c_.vocabulary);
    return p;
  }
  static std::vector<std::vector<double>*> All(Perturbations* p) {
    std::vector<std::vector<double>*> all;
    for (auto& l : p->layers) {
      for (auto* step : {&l.q, &l.out, &l.mid, &l.inner, &l.next}) all.push_back(step);
    }
    all.push_back(&p->logits);
    return all;
  }
  static void Add(const std::vector<double>& more, Matrix* to) {
    for (size_t i = 0; i < more.size(); ++i) to->values[i] += more[i];
  }

  // Logit a - logit b of the last token when every step gives so much more, K and V as they are:
  // the definition once more, forwards.
  double Difference(const Perturbations& p, int64_t a, int64_t b) const {
    constexpr int64_t kPosition = 8;
    const std::vector<int64_t> position = {kPosition};
    Matrix x = weights_.Embed(std::vector<int64_t>{small_model::Tokens(9).back()});
    for (int64_t layer = 0; layer < c_.layers(); ++layer) {
      const auto& change = p.layers[static_cast<size_t>(layer)];
      Matrix q = Project(weights_, layer, x, position, nullptr).q.value;
      Add(change.q, &q);
      Matrix out(1, c_.query_width());
      std::vector<int32_t> keys(kPosition + 1);
      std::iota(keys.begin(), keys.end(), 0);
      keys.erase(keys.begin(), keys.begin() + sequence_.FirstKey(layer, kPosition));
      for (int64_t h = 0; h < c_.query_heads; ++h) {
        RowQuestion question;
        question.head = &sequence_.Head(layer, h / 2).data();
        question.q = {q.Row(0) + h * c_.head_dim, static_cast<size_t>(c_.head_dim)};
        question.keys = keys;
        question.scale = c_.scale();
        const RowAnswer<double> answer = Define<double>(question);
        std::copy(answer.o.begin(), answer.o.end(), out.Row(0) + h * c_.head_dim);
      }
      Add(change.out, &out);
      Matrix mid = AddAttention(weights_, layer, x, out, nullptr).value;
      Add(change.mid, &mid);
      Matrix inner = Inner(weights_, layer, mid, nullptr).value;
      Add(change.inner, &inner);
      x = AddInner(weights_, layer, mid, inner, nullptr).value;
      Add(change.next, &x);
    }
    Matrix logits = Logits(weights_, x, nullptr).value;
    Add(p.logits, &logits);
    return logits.values[static_cast<size_t>(a)] - logits.values[static_cast<size_t>(b)];
  }

  const DecoderConfig c_ = small_model::Config();
  const DecoderWeights weights_{c_, small_model::Weights(c_)};
  DecoderSequence sequence_{weights_};
};

TEST_F(Propagation, OfABoundOfOneElementItIsTheSizeOfTheDerivative) {
  Perturbations zero = Zeros();
  const size_t steps = All(&zero).size();
  for (size_t step = 0; step < steps; ++step) {
    for (size_t i = 0; i < All(&zero)[step]->size(); i += 3) {
      Perturbations bound = zero, up = zero, down = zero;
      // A central difference is off by h^2 / 6 times a third derivative, here of size 1 to 100, and
      // by 2^-53 / h times the size of a logit: both below 1e-7 for this h.
      constexpr double kH = 0x1p-17;
      (*All(&bound)[step])[i] = 1;
      (*All(&up)[step])[i] = kH;
      (*All(&down)[step])[i] = -kH;
      const double slope = (Difference(up, 4, 7) - Difference(down, 4, 7)) / (2 * kH);
      EXPECT_NEAR(PropagatedError(weights_, sequence_, 8, 4, 7, bound), std::fabs(slope), 2e-7)
          << "step " << step << " element " << i;
    }
  }
}

// Ten directions of errors of the declared size: none goes beyond what is propagated. An error of
// twice the size in the direction of the gradient does.
TEST_F(Propagation, ErrorsOfTheDeclaredSizeStayWithinItAndTwiceTheSizeDoesNot) {
  constexpr double kSize = 0x1p-24;
  Perturbations zero = Zeros();
  Perturbations bound = zero;
  for (auto* step : All(&bound)) std::fill(step->begin(), step->end(), kSize);
  const double propagated = PropagatedError(weights_, sequence_, 8, 4, 7, bound);
  const double base = Difference(zero, 4, 7);
  // What is left out: the square of what is propagated, times derivatives of size 1 to 100, as
  // above.
  const double with_second_order = propagated * (1 + 100 * propagated);
  small_model::Draw draw(5);
  for (int direction = 0; direction < 10; ++direction) {
    Perturbations p = zero;
    for (auto* step : All(&p)) {
      for (double& value : *step) value = draw() < 0 ? -kSize : kSize;
    }
    EXPECT_LE(std::fabs(Difference(p, 4, 7) - base), with_second_order);
  }
  Perturbations worst = zero;
  const size_t steps = All(&worst).size();
  for (size_t step = 0; step < steps; ++step) {
    for (size_t i = 0; i < All(&worst)[step]->size(); ++i) {
      Perturbations one = zero;
      (*All(&one)[step])[i] = kSize;
      (*All(&worst)[step])[i] = Difference(one, 4, 7) > base ? 2 * kSize : -2 * kSize;
    }
  }
  EXPECT_GT(Difference(worst, 4, 7) - base, with_second_order);
}

}  // namespace
}  // namespace kvcheck
