/** The version of this package, which is that of the gateway it was made for. */
export const VERSION = "0.1.0";
