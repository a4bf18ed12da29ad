#include "reference/formats/lloyd_max.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <utility>

#include "reference/numerics/convert.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

using Real = Oracle50;

// A step this small squares its error: what is left are roundings, of which a system with 16
// unknowns makes up to 1e5 times the last place.
constexpr double kConverged = 1e-40;
constexpr int kMostSteps = 1000;

// atan(t), 0 <= t <= 1: halved until its series gains 12 bits a term.
Real ArcTangent(Real t) {
  Real factor = 1;
  while (t > Real(0x1p-6)) {
    t = t / (Real(1) + Sqrt(Real(1) + t * t));
    factor *= Real(2);
  }
  const Real square = t * t;
  Real power = t, sum = t;
  for (int k = 3; Abs(power) > Real(0x1p-180); k += 2) {
    power = -(power * square);
    sum += power / Real(k);
  }
  return factor * sum;
}

// For one x = sin theta of [0, 1]: c = cos theta.
struct AtEdge {
  Real x;
  Real integral;  // of cos^(d-2) from 0 to theta: of the density without its constant
  Real moment;    // c^(d-1)
  Real density;   // c^(d-3), without the constant; unused where x = 1
};

// The integral by parts: with J_m of cos^m, m J_m = c^(m-1) x + (m - 1) J_{m-2}.
AtEdge Evaluate(int d, const Real& x) {
  const Real square = Real(1) - x * x;
  const Real c = Sqrt(square);
  const bool even = d % 2 == 0;
  Real integral = even ? Real(2) * ArcTangent(x / (Real(1) + c)) : x;
  Real power = even ? c : square;  // c^(m-1)
  for (int m = even ? 2 : 3; m <= d - 2; m += 2) {
    integral = (power * x + Real(m - 1) * integral) / Real(m);
    power *= square;
  }
  // c^(m-1) of m = d: the loop leaves it so.
  AtEdge at = {x, integral, power, 0};
  if (square > Real(0)) at.density = power / square;
  return at;
}

// Where a quantiser of many cells has its centroids: equal shares of f^(1/3) (Panter and Dite,
// 1951), which over theta is cos^(d/3). In double, since a Newton iteration starts here.
std::vector<Real> Start(int d, size_t count) {
  constexpr int kSteps = 20000;
  const double width = std::acos(0.0) / kSteps;
  std::vector<double> sums(kSteps + 1, 0.0);
  for (size_t i = 0; i < kSteps; ++i) {
    const double theta = (static_cast<double>(i) + 0.5) * width;
    sums[i + 1] = sums[i] + std::pow(std::cos(theta), d / 3.0);
  }
  std::vector<Real> centroids;
  for (size_t k = 0; k < count; ++k) {
    const double share = (static_cast<double>(k) + 0.5) / static_cast<double>(count) * sums.back();
    const auto at = std::upper_bound(sums.begin(), sums.end(), share) - sums.begin();
    centroids.emplace_back(std::sin((static_cast<double>(at) - 0.5) * width));
  }
  return centroids;
}

struct Cells {
  std::vector<AtEdge> edges;  // one more than cells
  std::vector<Real> mass, moment;
  std::vector<Real> residual;  // g P - A
  Real constant;
  Real largest = 0;
};

Cells CellsOf(int d, const std::vector<Real>& g) {
  const size_t count = g.size();
  Cells cells;
  cells.edges.push_back(Evaluate(d, 0));
  for (size_t i = 1; i < count; ++i) {
    cells.edges.push_back(Evaluate(d, (g[i - 1] + g[i]) / Real(2)));
  }
  cells.edges.push_back(Evaluate(d, 1));
  cells.constant = Real(1) / (Real(2) * cells.edges.back().integral);
  for (size_t i = 0; i < count; ++i) {
    const AtEdge& low = cells.edges[i];
    const AtEdge& high = cells.edges[i + 1];
    cells.mass.push_back(cells.constant * (high.integral - low.integral));
    cells.moment.push_back(cells.constant * (low.moment - high.moment) / Real(d - 1));
    cells.residual.push_back(g[i] * cells.mass[i] - cells.moment[i]);
    cells.largest = Max(cells.largest, Abs(cells.residual[i]));
  }
  return cells;
}

// The Newton step: of the tridiagonal system, by elimination.
std::vector<Real> Step(const std::vector<Real>& g, const Cells& cells) {
  const size_t count = g.size();
  std::vector<Real> below(count, 0), middle = cells.mass, above(count, 0);
  for (size_t i = 0; i + 1 < count; ++i) {
    // Edge i + 1 moves by half of what either centroid does.
    const AtEdge& edge = cells.edges[i + 1];
    const Real half_density = cells.constant * edge.density / Real(2);
    const Real of_lower = (g[i] - edge.x) * half_density;
    const Real of_upper = -((g[i + 1] - edge.x) * half_density);
    middle[i] += of_lower;
    above[i] = of_lower;
    middle[i + 1] += of_upper;
    below[i + 1] = of_upper;
  }
  std::vector<Real> step = cells.residual;
  for (size_t i = 1; i < count; ++i) {
    const Real factor = below[i] / middle[i - 1];
    middle[i] -= factor * above[i - 1];
    step[i] -= factor * step[i - 1];
  }
  for (size_t i = count; i-- > 0;) {
    if (i + 1 < count) step[i] -= above[i] * step[i + 1];
    step[i] /= middle[i];
  }
  return step;
}

bool Ascends(const std::vector<Real>& g) {
  Real last = 0;
  for (const Real& value : g) {
    if (!(value > last)) return false;
    last = value;
  }
  return last < Real(1);
}

}  // namespace

LloydMax SolveLloydMax(int d, int bits) {
  KVCHECK_CHECK(d >= 2 && bits >= 1 && bits <= 8, "no such quantiser");
  std::vector<Real> g = Start(d, size_t{1} << (bits - 1));
  Cells cells = CellsOf(d, g);
  bool converged = false;
  for (int i = 0; i < kMostSteps && !converged; ++i) {
    const std::vector<Real> step = Step(g, cells);
    Real largest = 0;
    for (const Real& value : step) largest = Max(largest, Abs(value));
    converged = largest < Real(kConverged);
    std::vector<Real> next = g;
    for (size_t k = 0; k < g.size(); ++k) next[k] -= step[k];
    Cells of_next = cells;
    if (Ascends(next)) of_next = CellsOf(d, next);
    if (!converged && !(of_next.largest < cells.largest / Real(2))) {
      // Too far from the solution: a step of Lloyd's iteration, which never goes wrong.
      for (size_t k = 0; k < g.size(); ++k) next[k] = cells.moment[k] / cells.mass[k];
      of_next = CellsOf(d, next);
    }
    g = std::move(next);
    cells = std::move(of_next);
  }
  KVCHECK_CHECK(converged, "the quantiser was not found");
  Real sum = 0;
  for (size_t i = 0; i < g.size(); ++i) {
    sum += cells.moment[i] * cells.moment[i] / cells.mass[i];
  }
  return {g, Real(1) - Real(2 * d) * sum, cells.largest};
}

std::span<const float> LloydMaxCodebook(int d, int bits) {
  static std::mutex mutex;
  static std::map<std::pair<int, int>, std::vector<float>> solved;
  const std::lock_guard lock(mutex);
  std::vector<float>& codebook = solved[{d, bits}];
  if (codebook.empty()) {
    const LloydMax exact = SolveLloydMax(d, bits);
    for (auto g = exact.centroids.rbegin(); g != exact.centroids.rend(); ++g) {
      codebook.push_back(static_cast<float>(-RoundTo(DType::kFloat32, g->ToDouble())));
    }
    for (size_t i = codebook.size(); i-- > 0;) codebook.push_back(-codebook[i]);
  }
  return codebook;
}

}  // namespace kvcheck
