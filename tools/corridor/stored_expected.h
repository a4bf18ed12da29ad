// Expected values as golden files store them, hi + lo: computing them, and holding stored ones
// against a recomputation.
//
// Rule: |stored - recomputed| <= B + B', with B and B' the reference's own error bounds of the two
// computations; plus 2^-53 |value| where the file keeps no low part. B' is that of double-double,
// and of 50 digits in a sample of tiles, so that the two are also held against each other. Values
// of conformance (codes, and what a decoder gives) must be equal.

#ifndef TOOLS_CORRIDOR_STORED_EXPECTED_H_
#define TOOLS_CORRIDOR_STORED_EXPECTED_H_

#include <map>
#include <string>
#include <vector>

#include "golden/schema.h"
#include "reference/judge/judge.h"
#include "reference/spec/tiles.h"
#include "tools/corridor/evaluate_case.h"

namespace kvcheck {

// The question whose expected values are stored: values depend on the profile and not on the plan,
// so the plan is one that no intermediate value exceeds (everything in f64).
Question ValueQuestion(Case c, TensorMap inputs, const Profile& profile);

// Conventions that decide the values of a stored case where nothing else states them: those of the
// first implementation observed.
Profile ValueProfile(const GoldenCase& c);

// All outputs at double-double. Elements without a defined value are NaN; the low part is left out
// where it is zero throughout.
std::map<std::string, ExpectedTensor> ComputeExpected(const ExpectedSource& source, int threads);

// Rows of a sample that mean something for this case: 0 for codecs, whose values are exact at every
// precision.
int64_t SampleRows(const Case& c, int64_t sample_rows);

// sample_rows: rows, at least, that 50 digits re-check (whole tiles, spread evenly; 0: none).
// The verdict says how many rows each precision decided. Errors: Cancelled.
Verdict VerifyExpected(const ExpectedSource& source,
                       const std::map<std::string, ExpectedTensor>& stored, int64_t sample_rows,
                       JudgeOptions options, const Cancel& cancel = {});

}  // namespace kvcheck

#endif  // TOOLS_CORRIDOR_STORED_EXPECTED_H_
