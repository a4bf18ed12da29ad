#include "reference/model/product.h"

#define KVCHECK_PRODUCT ProductV3
#include "reference/model/product-inl.h"
